-- The language server for Neovim 0.11 and later: `vim.lsp.enable("difflang")` starts it for programs.
return {
  cmd = { "difflang", "lsp" },
  filetypes = { "difflang" },
  root_markers = { "pyproject.toml", ".git" },
}
