<?php
// Templates of Debian's php-twig, compiled and rendered.
require '/usr/share/php/Twig/autoload.php';

$templates = [
    'base' => '<html>{% block body %}{% endblock %}</html>',
    'list' => '{% extends "base" %}{% block body %}{% for item in items %}{% include "item" %}{% endfor %}{% endblock %}',
    'item' => '<li class="{{ cycle(["odd", "even"], loop.index) }}">{{ item.name|upper|escape }} {{ "%05.2f"|format(item.price) }}</li>',
];
$items = [];
for ($i = 0; $i < 200; $i++) $items[] = ['name' => "<item $i>", 'price' => $i * 1.37];
for ($round = 0; $round < 5; $round++) {
    $twig = new Twig\Environment(new Twig\Loader\ArrayLoader($templates));
    echo md5($twig->render('list', ['items' => $items])), "\n";
}
