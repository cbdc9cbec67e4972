# Starts the workers that serve the telephone directory, and a new one for each that has retired.
#
# A worker is a process of its own, not a fork of one that has loaded the application: its heap holds
# nothing that came before it, which is what a restart is for. All workers accept on one socket, which
# the supervisor keeps open, so visitors wait while a worker starts and none is turned away. It is
# handed over by systemd's protocol for sockets (LISTEN_FDS), which puma knows.
#
# Ends on SIGTERM, when all workers have ended; ends with an error when a worker fails.
#
# Usage: supervisor.rb PORT WORKERS THREADS RESTART_EVERY DATABASE SCRATCH
require "fileutils"
require "socket"

PUMA = "/usr/bin/puma"
CONFIG = File.join(__dir__, "directory", "config", "puma.rb")
# The kernel ends a worker whose supervisor is gone, however that came about.
OUTLIVE_NOBODY = ["/usr/bin/setpriv", "--pdeathsig", "TERM"].freeze
# Only the process itself can say its number, which the protocol wants.
HAND_OVER = ["/bin/sh", "-c", 'LISTEN_PID=$$ exec "$@"', "sh"].freeze
START = [*OUTLIVE_NOBODY, *HAND_OVER, PUMA, "--config", CONFIG].freeze
# The descriptor of a process's first socket, by the same protocol.
HANDED_OVER = 3
# How puma ends when it has been told to, and has answered what it had in hand.
RETIRED = Signal.list.fetch("TERM")
# A program that has only just begun may lose a signal, so it is repeated. A worker that is busy ending
# takes no harm.
INSIST_AFTER_S = 1

class Supervisor
  def initialize(port, workers, threads, restart_every, database, scratch)
    FileUtils.cp(database, File.join(scratch, "directory.sqlite3"))
    @socket = TCPServer.new("127.0.0.1", port)
    @environment = {
      "DIRECTORY_PORT" => port,
      "DIRECTORY_THREADS" => threads,
      "DIRECTORY_RESTART_EVERY" => restart_every,
      "DIRECTORY_SCRATCH" => scratch,
      "RAILS_ENV" => "production",
      "LISTEN_FDS" => "1"
    }
    @wanted = Integer(workers)
    @running = []
    @stopping = false
    @failed = false
  end

  # Returns, when the last worker has ended, whether all did as they should.
  def run
    %w[TERM INT].each { |signal| trap(signal) { stop } }
    insist
    @wanted.times { start_worker }
    ended(*Process.wait2) until @running.empty?
    !@failed
  end

  private

  def start_worker
    @running << spawn(@environment, *START, HANDED_OVER => @socket)
    # A signal that came meanwhile has not reached this worker.
    stop if @stopping
  end

  def ended(pid, status)
    @running.delete(pid)
    return if @stopping
    return start_worker if status.termsig == RETIRED

    warn("supervisor.rb: a worker failed: #{status}")
    @failed = true
    stop
  end

  def stop
    @stopping = true
    @running.each { |pid| tell_to_end(pid) }
  end

  def insist
    Thread.new do
      loop do
        sleep(INSIST_AFTER_S)
        stop if @stopping
      end
    end
  end

  def tell_to_end(pid)
    Process.kill("TERM", pid)
  rescue Errno::ESRCH
    # It has just ended by itself.
  end
end

abort("Usage: supervisor.rb PORT WORKERS THREADS RESTART_EVERY DATABASE SCRATCH") if ARGV.size != 6
exit(Supervisor.new(*ARGV).run)
