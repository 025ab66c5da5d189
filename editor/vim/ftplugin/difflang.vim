" Comments, indentation and folding of difflang programs; `:make` runs `difflang check`.
if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1

setlocal comments=:##,:#
setlocal commentstring=#\ %s
setlocal formatoptions-=t formatoptions+=croql
setlocal expandtab shiftwidth=2 softtabstop=2
setlocal suffixesadd=.dfl
setlocal foldmethod=indent foldlevel=99
compiler difflang

let b:undo_ftplugin = 'setlocal comments< commentstring< formatoptions< expandtab< shiftwidth< softtabstop<'
      \ . ' suffixesadd< foldmethod< foldlevel< makeprg< errorformat<'
