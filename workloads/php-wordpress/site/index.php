<?php
// Every request to the blog arrives here: WordPress's own index.php, but for where its settings are.

define('WP_USE_THEMES', true);
require dirname(__DIR__) . '/settings.php';
wp();
require_once ABSPATH . WPINC . '/template-loader.php';
