# Perl's hashes, regular expressions, sorting, closures, formats and a child process.
use strict;
use warnings;
use Digest::SHA qw(sha256_hex);
use List::Util qw(sum0 shuffle);
use Storable qw(dclone);

my $state = 20240229;
sub chance { my ($limit) = @_; $state = ($state * 1103515245 + 12345) % 2147483648; return int($state / 256) % $limit }

my @words = map { join '', map { chr(97 + chance(26)) } 0 .. chance(12) } 1 .. 40000;
my %index;
push @{ $index{ substr $_, 0, 2 } }, $_ for @words;
print scalar(keys %index), ' initials, ', sum0(map { scalar @$_ } values %index), " words\n";

my @sorted = sort { length $a <=> length $b or $a cmp $b } @words;
print 'sorted ', sha256_hex(join ',', @sorted), "\n";

my $text = join ' ', @words;
my $vowels = () = $text =~ /[aeiou]{2,}/g;
(my $changed = $text) =~ s/(\w)(\w*)/\U$1\E$2/g;
$changed =~ s{(\b[A-F]\w+)}{ '<' . reverse($1) . '>' }ge;
print "vowels $vowels, changed ", sha256_hex($changed), "\n";

my $copy = dclone(\%index);
delete $copy->{$_} for grep { ord($_) % 2 } keys %$copy;
print 'left ', scalar(keys %$copy), "\n";

my $grown = '';
$grown .= $_ x (chance(5) + 1) for @words;
print 'grown ', length $grown, ' ', sha256_hex($grown), "\n";

my @counters = map { my $count = $_; sub { $count += shift } } 1 .. 5000;
my $total = 0;
$total += $counters[ $_ % 5000 ]->(3) for 1 .. 50000;
print "closures $total\n";

open my $child, '-|', $^X, '-e', 'print scalar reverse "dlihc"' or die "no child: $!";
print 'from a ', <$child>, "\n";
close $child or die "the child failed: $?";
