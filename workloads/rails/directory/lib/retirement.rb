# A Rack middleware that counts this worker's requests and asks it to leave after so many of them
# (0: never). The worker leaves as on an administrator's SIGTERM: what it has accepted, it answers.
class Retirement
  def initialize(app, ledger:, after:)
    @app = app
    @ledger = ledger
    @after = after
    @served = 0
    @lock = Mutex.new
    at_exit { ledger.left(@served) }
    ledger.started
  end

  def call(env)
    number = count
    @ledger.serving if number == 1
    answer = @app.call(env)
    leave if number == @after
    answer
  end

  private

  def count
    @lock.synchronize { @served += 1 }
  end

  def leave
    Process.kill("TERM", Process.pid)
  end
end
