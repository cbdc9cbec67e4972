<?php
// What this wiki sets beyond DokuWiki's own defaults: where its pages are, who may edit (everybody),
// and nothing that depends on the time of day.

$conf['title'] = 'Perl manual';
$conf['savedir'] = getenv( 'WIKI_PAGES' );
$conf['useacl'] = 0;
$conf['license'] = '0';
$conf['updatecheck'] = 0;
$conf['usewordblock'] = 0; // it would refuse some articles for the links in them
$conf['cachetime'] = 10 * 365 * 24 * 3600; // rendered pages stay good however old the prepared data is
