// In place of Sphinx's file of this name, which marks every part of a word on whichever page is opened after a search: finder.js marks what is found.
const SPHINX_HIGHLIGHT_ENABLED = false;
