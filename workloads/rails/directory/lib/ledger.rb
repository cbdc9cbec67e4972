# The workers' common notebook, a line for each event with the worker's process id:
#   started PID CPU                      ready to serve; CPU time since it began, in seconds
#   serving PID                          answers its first request
#   left PID CPU REQUESTS RSS PSS        is about to end; requests answered, memory in KiB
# A line is one write to a file opened for appending, so those of several workers do not mix.
class Ledger
  MEMORY = "/proc/self/smaps_rollup"

  def initialize(path)
    @path = path
  end

  def started
    note("started", cpu_seconds)
  end

  def serving
    note("serving")
  end

  def left(requests)
    note("left", cpu_seconds, requests, *memory_kib)
  end

  private

  def note(event, *figures)
    line = [event, Process.pid, *figures].join(" ") + "\n"
    File.open(@path, File::WRONLY | File::APPEND | File::CREAT) { |file| file.syswrite(line) }
  end

  def cpu_seconds
    Process.clock_gettime(Process::CLOCK_PROCESS_CPUTIME_ID)
  end

  def memory_kib
    rollup = File.read(MEMORY)
    %w[Rss Pss].map { |name| Integer(rollup[/^#{name}:\s+(\d+) kB$/, 1]) }
  end
end
