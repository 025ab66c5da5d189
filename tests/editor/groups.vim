" Writes, for each file of g:corpus, the syntax group of each byte column, one line of text to one line of output.
set nocompatible encoding=utf-8 nomore
execute 'set runtimepath^=' . fnameescape(g:plugin)
filetype on
syntax on
for s:pair in g:corpus
  execute 'edit ' . fnameescape(s:pair[0])
  let s:out = ['filetype ' . &filetype]
  for s:row in range(1, line('$'))
    let s:groups = []
    for s:col in range(1, len(getline(s:row)))
      call add(s:groups, synIDattr(synID(s:row, s:col, 1), 'name'))
    endfor
    call add(s:out, join(s:groups, ';'))
  endfor
  call writefile(s:out, s:pair[1])
endfor
qall!
