"""Windows of arrays that are split over devices."""
