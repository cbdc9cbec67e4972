#!/usr/bin/perl
# The Perl part of `perl-pods`: Perl's own documentation, parsed into trees, kept, indexed, compared.
#
# Every document becomes a tree of arrays and hashes that stays until the end. Over the trees: an
# index of all words with the places where they stand, the graph of links between documents, plain
# text folded to lines, and what is old and new between the news of one release and of the next
# (longest common subsequences of words). Prints what each part found in a stated order; fails if one
# part contradicts another.

use strict;
use warnings;

use Digest::MD5 qw(md5_hex);
use Encode qw(encode_utf8);
use List::Util qw(sum);
use Pod::Simple::SimpleTree;
use Text::Wrap qw(wrap);

my $SMALLEST    = 90_000;     # bytes: shorter documents say little
my $LARGEST     = 140_000;    # longer ones are lists of names
my $MOST_WORDS  = 6_000;      # of a release's news that are compared
my $COMMON_WORD = 400;        # places; words that stand in more are not followed

$Text::Wrap::columns = 76;

# ---- Documents: name => tree ----

sub pod_folder {
    for my $folder (map { "$_/pod" } @INC) {
        return $folder if -e "$folder/perlfunc.pod";
    }
    die "pods.pl: no documentation; install the package perl-doc\n";
}

sub parsed {
    my ($folder) = @_;
    my %tree_of;
    for my $path (glob "$folder/*.pod") {
        next if -s $path < $SMALLEST || -s $path > $LARGEST;
        my ($name) = $path =~ m{([^/]+)\.pod$};
        $tree_of{$name} = Pod::Simple::SimpleTree->new->parse_file($path)->root;
    }
    return \%tree_of;
}

# A node is [name, attributes, children...]; a child that is no node is text.
sub text_of {
    my ($node) = @_;
    my ($name, $attributes, @children) = @$node;
    return join '', map { ref $_ ? text_of($_) : $_ } @children;
}

sub each_node {
    my ($node, $visit) = @_;
    $visit->($node);
    my (undef, undef, @children) = @$node;
    each_node($_, $visit) for grep { ref } @children;
    return;
}

# ---- The parts: paragraphs, words, links, text, changes ----

sub paragraphs_of {
    my ($tree) = @_;
    my @paragraphs;
    each_node($tree, sub {
        my ($node) = @_;
        push @paragraphs, { kind => $node->[0], text => text_of($node) }
            if $node->[0] =~ /^(?:Para|Verbatim|head[1-6]|item-.*)$/;
    });
    return \@paragraphs;
}

# word => list of { document, paragraph, offset }
sub index_of {
    my ($paragraphs_of) = @_;
    my %places;
    for my $document (sort keys %$paragraphs_of) {
        my $number = 0;
        for my $paragraph (@{ $paragraphs_of->{$document} }) {
            $number++;
            while ($paragraph->{text} =~ /([A-Za-z][a-z_]+)/g) {
                push @{ $places{ lc $1 } },
                    { document => $document, paragraph => $number, offset => $-[1] };
            }
        }
    }
    return \%places;
}

# Words that stand near each other oftenest, among those that are not everywhere.
sub neighbours {
    my ($places) = @_;
    my (%at, %together);
    for my $word (sort keys %$places) {
        my $list = $places->{$word};
        next if @$list < 3 || @$list > $COMMON_WORD;
        push @{ $at{"$_->{document}:$_->{paragraph}"} }, [$word, $_->{offset}] for @$list;
    }
    for my $place (sort keys %at) {
        my @near = sort { $a->[1] <=> $b->[1] || $a->[0] cmp $b->[0] } @{ $at{$place} };
        for my $i (1 .. $#near) {
            next if $near[$i][1] - $near[$i - 1][1] > 40 || $near[$i][0] eq $near[$i - 1][0];
            $together{"$near[$i - 1][0] $near[$i][0]"}++;
        }
    }
    return \%together;
}

sub links_of {
    my ($tree_of) = @_;
    my %links;
    for my $document (keys %$tree_of) {
        each_node($tree_of->{$document}, sub {
            my ($node) = @_;
            return if $node->[0] ne 'L' || $node->[1]{type} ne 'pod' || !defined $node->[1]{to};
            my $target = text_of($node->[1]{to});
            $links{$document}{$target}++ if $target ne $document;
        });
    }
    return \%links;
}

# How far each document is from `$start`, following links: breadth first.
sub distances {
    my ($links, $start) = @_;
    my %distance = ($start => 0);
    my @waiting = ($start);
    while (defined(my $document = shift @waiting)) {
        for my $target (sort keys %{ $links->{$document} || {} }) {
            next if exists $distance{$target};
            $distance{$target} = $distance{$document} + 1;
            push @waiting, $target;
        }
    }
    return \%distance;
}

sub rendered {
    my ($paragraphs) = @_;
    return join "\n", map {
        $_->{kind} eq 'Verbatim' ? "$_->{text}\n" : wrap('    ', '    ', $_->{text}) . "\n"
    } @$paragraphs;
}

# How many words two texts have in common, in one order: the method of Hunt and Szymanski.
sub common_words {
    my ($old, $new) = @_;
    my %places_in_new;
    push @{ $places_in_new{ $new->[$_] } }, $_ for reverse 0 .. $#$new;
    my @thresholds;
    for my $word (@$old) {
        for my $place (@{ $places_in_new{$word} || [] }) {
            my ($low, $high) = (0, scalar @thresholds);
            while ($low < $high) {
                my $middle = int(($low + $high) / 2);
                if ($thresholds[$middle]{place} < $place) { $low = $middle + 1 }
                else                                      { $high = $middle }
            }
            my $before = $low > 0 ? $thresholds[ $low - 1 ] : undef;
            $thresholds[$low] = { place => $place, before => $before };
        }
    }
    my $length = 0;
    for (my $step = $thresholds[-1]; $step; $step = $step->{before}) { $length++ }
    die "pods.pl: a chain of $length words, not of " . @thresholds . "\n"
        if $length != @thresholds;
    return $length;
}

sub words_of_news {
    my ($paragraphs) = @_;
    my @words = map { lc } map { $_->{text} =~ /(\w+)/g } @$paragraphs;
    return [ splice @words, 0, $MOST_WORDS ];
}

# ---- The whole ----

my $tree_of = parsed(pod_folder());
my %paragraphs_of = map { $_ => paragraphs_of($tree_of->{$_}) } keys %$tree_of;
my @documents = sort keys %$tree_of;
printf "documents %d, paragraphs %d\n", scalar @documents, sum(map { scalar @$_ } values %paragraphs_of);

my $places = index_of(\%paragraphs_of);
my $indexed = sum(map { scalar @$_ } values %$places);
my $counted = 0;
for my $document (@documents) {
    for my $paragraph (@{ $paragraphs_of{$document} }) {
        $counted++ while $paragraph->{text} =~ /[A-Za-z][a-z_]+/g;
    }
}
die "pods.pl: $indexed words in the index, $counted in the text\n" if $indexed != $counted;
printf "words %d, different %d\n", $indexed, scalar keys %$places;

my $together = neighbours($places);
my @pairs = sort { $together->{$b} <=> $together->{$a} || $a cmp $b } keys %$together;
printf "pair %d %s\n", $together->{$_}, $_ for @pairs[0 .. 9];

my $links = links_of($tree_of);
my $distance = distances($links, 'perlre');
my %at_distance;
$at_distance{$_}++ for values %$distance;
printf "distance %d: %d documents\n", $_, $at_distance{$_} for sort { $a <=> $b } keys %at_distance;

my $text = '';
for my $document (@documents) {
    my $rendered = rendered($paragraphs_of{$document});
    $text .= md5_hex(encode_utf8($rendered)) . " $document\n";
}
printf "text %s\n", md5_hex($text);

my @news = grep { /^perl5\d\d0delta$/ } @documents;
my %words_of_news = map { $_ => words_of_news($paragraphs_of{$_}) } @news;
for my $i (1 .. $#news) {
    my ($old, $new) = @words_of_news{ @news[ $i - 1, $i ] };
    printf "%s to %s: %d of %d words\n", @news[ $i - 1, $i ], common_words($old, $new), scalar @$new;
}
print "pods consistent\n";
