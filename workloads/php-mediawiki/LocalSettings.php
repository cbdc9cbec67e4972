<?php
// The wiki that this workload reads and edits: MediaWiki as Debian packages it, SQLite for its pages,
// APCu for what all requests need, the database for rendered pages. What a wiki in production sets, is
// set; what would make one trial differ from another (jobs within requests, limits of edits) is off.

if ( !defined( 'MEDIAWIKI' ) ) {
	exit;
}

$wgSitename = 'Perl manual';
$wgMetaNamespace = 'Project';
$wgServer = 'http://127.0.0.1';
$wgScriptPath = '';
$wgLanguageCode = 'en';

// A copy in the trial's folder.
$wgDBtype = 'sqlite';
$wgDBname = 'wiki';
$wgSQLiteDataDir = getenv( 'WIKI_DATABASE' );
$wgDBerrorLog = false;

$wgMainCacheType = CACHE_ACCEL;
$wgMessageCacheType = CACHE_ACCEL;
$wgParserCacheType = CACHE_DB;
$wgSessionCacheType = CACHE_DB;
// As MediaWiki's installer has it: rendered pages in a file of their own, written in transactions that
// wait for one another from their start. One that has read before it wants to write cannot wait, and fails.
$wgObjectCaches[CACHE_DB] = [
	'class' => SqlBagOStuff::class,
	'loggroup' => 'SQLBagOStuff',
	'server' => [
		'type' => 'sqlite',
		'dbname' => 'wikicache',
		'tablePrefix' => '',
		'variables' => [ 'synchronous' => 'NORMAL' ],
		'dbDirectory' => $wgSQLiteDataDir,
		'trxMode' => 'IMMEDIATE',
		'flags' => 0,
	],
];
// The preparation wrote it; nothing is found out anew in a trial.
$wgCacheDirectory = getenv( 'WIKI_LOCALISATION' );
$wgLocalisationCacheConf['store'] = 'array';
$wgLocalisationCacheConf['manualRecache'] = getenv( 'WIKI_LOCALISATION_WRITABLE' ) === false;

$wgJobRunRate = 0;
$wgRateLimits = [];
$wgEnableUploads = false;
$wgUseInstantCommons = false;
$wgPingback = false;
$wgEnableEmail = false;
$wgSpecialVersionShowHooks = false;
$wgDisableCounters = true;
$wgSecretKey = str_repeat( '0123456789abcdef', 4 );
$wgAuthenticationTokenVersion = '1';
$wgShowExceptionDetails = true;

wfLoadSkin( 'Vector' );
$wgDefaultSkin = 'vector';
wfLoadExtension( 'Cite' );
wfLoadExtension( 'ParserFunctions' );
