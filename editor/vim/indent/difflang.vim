" Two spaces for the lines that a bracket holds, however many brackets a line opens.
if exists('b:did_indent')
  finish
endif
let b:did_indent = 1
setlocal indentexpr=DifflangIndent()
setlocal indentkeys=0{,0},0),0],!^F,o,O
let b:undo_indent = 'setlocal indentexpr< indentkeys<'

if exists('*DifflangIndent')
  finish
endif

" How many brackets of a line stay open, strings and comments left out.
function! s:open(text) abort
  let l:code = substitute(a:text, '"\%(\\.\|[^"\\]\)*"\|#.*', '', 'g')
  return len(substitute(l:code, '[^([{]', '', 'g')) - len(substitute(l:code, '[^])}]', '', 'g'))
endfunction

function! DifflangIndent() abort
  let l:before = prevnonblank(v:lnum - 1)
  if l:before == 0
    return 0
  endif
  let l:text = getline(l:before)
  let l:closed = l:text =~# '^\s*[])}]'
  let l:column = indent(l:before)
  if s:open(l:text) + l:closed > 0
    let l:column += shiftwidth()
  elseif s:open(l:text) + l:closed < 0
    let l:column -= shiftwidth()
  endif
  return getline(v:lnum) =~# '^\s*[])}]' ? l:column - shiftwidth() : l:column
endfunction
