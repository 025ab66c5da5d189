;; Writes, for each pair of files in the arguments, the face of each character of the first into the second.
(require 'difflang-mode)
(while command-line-args-left
  (let ((program (pop command-line-args-left))
        (out (pop command-line-args-left))
        (faces '()))
    (with-current-buffer (find-file-noselect program)
      (font-lock-mode 1)
      (font-lock-ensure)
      (push (format "%s" major-mode) faces)
      (dotimes (at (buffer-size))
        (push (format "%s" (or (get-text-property (1+ at) 'face) "")) faces))
      (write-region (mapconcat #'identity (nreverse faces) "\n") nil out nil 'quiet))))
