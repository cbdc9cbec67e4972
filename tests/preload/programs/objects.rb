# Ruby's objects, strings that outgrow their slots, threads, garbage collection and a child process.
require 'digest'
require 'json'
require 'set'

def short(text) = Digest::SHA256.hexdigest(text)[0, 16]

state = 20_240_229
chance = ->(limit) { (state = (state * 1_103_515_245 + 12_345) % 2_147_483_648) / 256 % limit }

Person = Struct.new(:id, :name, :friends)
people = Array.new(20_000) { |id| Person.new(id, 'n' * (chance.(90) + 1) + id.to_s, Set.new) }
people.each { |person| 3.times { person.friends << chance.(people.size) } }
graph = people.to_h { |person| [person.name, person.friends.map { |id| people[id].name }.sort] }
puts "graph #{graph.size} #{short(JSON.generate(graph))}"

reached = Set[0]
frontier = [0]
until frontier.empty?
  frontier = frontier.flat_map { |id| people[id].friends.to_a }.uniq.select { |id| reached.add?(id) }
end
puts "reached #{reached.size}"

texts = 4.times.map do |number|
  Thread.new do
    text = +''
    4000.times { |line| text << "#{number}:#{line} " << 'x' * (line % 60) }
    text.gsub(/x{9,}/) { |run| run.length.to_s }.scan(/\d+/).map(&:to_i).sum
  end
end
puts "threads #{texts.map(&:value).join(' ')}"

20.times { Array.new(5000) { |size| 'y' * (size % 700) }.map(&:upcase) }
GC.start(full_mark: true, immediate_sweep: true)
GC.compact if GC.respond_to?(:compact)
puts "copy #{short(Marshal.dump(Marshal.load(Marshal.dump(people))))}"
puts "child #{IO.popen(['sh', '-c', 'echo from a child'], &:read)}"
