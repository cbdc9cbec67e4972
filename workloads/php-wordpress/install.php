<?php
// Installs the blog into an empty database and puts posts with comments into it.
//
// Usage: php install.php POSTS TITLES   (POSTS: what prepare.py wrote; TITLES gets each post's title
// as the theme prints it, by the post's name)

const DATABASE = 'wordpress';

// WordPress has what follows for us to replace: no first post of its own, no mail to anybody.
function wp_install_defaults($user_id)
{
}

function wp_new_blog_notification($title, $url, $user_id, $password)
{
}

/** The id of a category, made when it is first asked for. */
function category(string $name): int
{
    $found = get_term_by('name', $name, 'category');
    return $found ? $found->term_id : wp_insert_term($name, 'category')['term_id'];
}

function add_post(array $post): int
{
    $id = wp_insert_post(wp_slash([
        'post_title' => $post['title'],
        'post_name' => $post['name'],
        'post_content' => $post['content'],
        'post_status' => 'publish',
        'post_date' => $post['date'],
        'post_date_gmt' => $post['date'],
        'post_author' => 1,
        'post_category' => [category($post['category'])],
        'tags_input' => [$post['tag']],
    ]), true);
    if (is_wp_error($id)) {
        throw new RuntimeException("$post[name]: " . $id->get_error_message());
    }
    return $id;
}

function add_comments(int $post, array $comments): void
{
    $ids = [];
    foreach ($comments as $comment) {
        $answered = $comment['answers'];
        $ids[] = wp_insert_comment(wp_slash([
            'comment_post_ID' => $post,
            'comment_author' => $comment['author'],
            // Without one, the theme takes the picture from a server chosen at random.
            'comment_author_email' => strtolower($comment['author']) . '@localhost',
            'comment_content' => $comment['content'],
            'comment_date' => $comment['date'],
            'comment_date_gmt' => $comment['date'],
            'comment_parent' => $answered === null ? 0 : $ids[$answered],
            'comment_approved' => 1,
        ]));
    }
}

if ($argc !== 3) {
    fwrite(STDERR, "usage: php install.php POSTS TITLES\n");
    exit(2);
}
$posts = json_decode(file_get_contents($argv[1]), true, flags: JSON_THROW_ON_ERROR);

$server = new mysqli('localhost', 'root', '', '', 0, getenv('WORDPRESS_DATABASE'));
$server->query('CREATE DATABASE ' . DATABASE . ' CHARACTER SET utf8mb4');
$server->close();

define('WP_INSTALLING', true);
require __DIR__ . '/settings.php';
require_once ABSPATH . 'wp-admin/includes/upgrade.php';

// Known beforehand, so that WordPress does not ask its own web server whether it can do it.
add_filter('pre_option_permalink_structure', static fn (): string => '/%postname%/');
wp_install('Notes on Perl', 'editor', 'editor@localhost', true, '', wp_generate_password());
remove_all_filters('pre_option_permalink_structure');
update_option('permalink_structure', '/%postname%/');
update_option('default_category', category('Notes'));
update_option('thread_comments', 1);
wp_set_current_user(1);

wp_defer_term_counting(true);
wp_defer_comment_counting(true);
$titles = [];
foreach ($posts as $post) {
    $id = add_post($post);
    add_comments($id, $post['comments']);
    $titles[$post['name']] = get_the_title($id);
}
wp_defer_term_counting(false);
wp_defer_comment_counting(false);

// Categories and tags learn their addresses when they are registered, which was before there were any.
$wp_rewrite->init();
create_initial_taxonomies();
$wp_rewrite->flush_rules(false);
file_put_contents($argv[2], json_encode($titles, JSON_THROW_ON_ERROR));
