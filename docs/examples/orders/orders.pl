#!/usr/bin/env perl
# A month of orders: take them in, cancel some, change some, print what each region bought.
# The example of docs/compare.md: a program of many small records that live unequally long.
use strict;
use warnings;

my ($months, $orders_per_month) = (2, 40_000);
my @regions = qw(north east south west);
my (%open, %sold, $next);

# The same sequence in every run: a linear congruential generator (Numerical Recipes' constants).
my $state = 1;
sub draw { my ($n) = @_; $state = ($state * 1664525 + 1013904223) % 4294967296; return int($state / 65536) % $n }

for my $month (1 .. $months) {
    for (1 .. $orders_per_month) {
        my $id = ++$next;
        my @lines = map { { item => "item-" . draw(5000), count => 1 + draw(9) } } 1 .. 1 + draw(4);
        $open{$id} = { customer => "customer-" . draw(20_000), region => $regions[draw(4)], lines => \@lines };
        my $other = 1 + draw($next);
        if (draw(10) < 3) { delete $open{$other} }
        elsif ($open{$other}) { $open{$other}{note} = "changed by order $id " . "x" x draw(200) }
    }
    for my $id (sort { $a <=> $b } keys %open) {
        next if draw(3) == 0;    # not delivered yet
        my $order = delete $open{$id};
        $sold{ $order->{region} }{ $_->{item} } += $_->{count} for @{ $order->{lines} };
    }
}

for my $region (sort keys %sold) {
    my @best = sort { $sold{$region}{$b} <=> $sold{$region}{$a} || $a cmp $b } keys %{ $sold{$region} };
    print "$region: ", join(", ", map { "$_ $sold{$region}{$_}" } @best[0 .. 2]), "\n";
}
print "still open: ", scalar(keys %open), "\n";
