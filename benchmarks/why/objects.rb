# Objects on the pages of Ruby's heap.
kept = Array.new(4_000_000) { |i| i.to_s }
puts 'ready'
$stdout.flush
$stdin.read
puts kept.size
