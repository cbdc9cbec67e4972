<?php
// The blog that this workload reads: WordPress as Debian packages it, its default theme, a database of
// the trial's own. What would make one trial differ from another (cron, updates, mail, requests to
// other machines) is off.

define('DB_NAME', 'wordpress');
define('DB_USER', 'root');
define('DB_PASSWORD', '');
define('DB_HOST', 'localhost:' . getenv('WORDPRESS_DATABASE'));
define('DB_CHARSET', 'utf8mb4');
define('DB_COLLATE', '');
$table_prefix = 'wp_';

// Pages are to be the same in every trial, whatever its port.
$_SERVER['HTTP_HOST'] = '127.0.0.1';
define('WP_HOME', 'http://127.0.0.1');
define('WP_SITEURL', WP_HOME);
define('WP_CONTENT_DIR', '/usr/share/wordpress/wp-content');

define('DISABLE_WP_CRON', true);
define('AUTOMATIC_UPDATER_DISABLED', true);
define('WP_HTTP_BLOCK_EXTERNAL', true);
define('DISALLOW_FILE_MODS', true);

foreach (['AUTH', 'SECURE_AUTH', 'LOGGED_IN', 'NONCE'] as $name) {
    define("{$name}_KEY", str_repeat('0123456789abcdef', 4));
    define("{$name}_SALT", str_repeat('fedcba9876543210', 4));
}

define('ABSPATH', '/usr/share/wordpress/');
require_once ABSPATH . 'wp-settings.php';
