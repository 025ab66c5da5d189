autocmd BufRead,BufNewFile *.dfl setfiletype difflang
