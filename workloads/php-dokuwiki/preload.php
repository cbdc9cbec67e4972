<?php
// Runs before each script of DokuWiki: the folder of its settings is the prepared one.

define( 'DOKU_CONF', getenv( 'WIKI_SETTINGS' ) . '/' );
