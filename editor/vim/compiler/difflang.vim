" `:make` checks the file. A report is a line with its code, then one with the place.
if exists('current_compiler')
  finish
endif
let current_compiler = 'difflang'

CompilerSet makeprg=difflang\ check\ %:S
CompilerSet errorformat=%Eerror[%m,%Wwarning[%m,%C\ %#-->\ %f:%l:%c,%C%.%#
