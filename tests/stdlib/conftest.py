"""The graphs of all programs of the library's tests are what their JSON says."""

from __future__ import annotations

from support.read_back import graphs_in_json as graphs_in_json
