# What puma serves: the application, behind what counts the worker's requests and makes it retire.

# Puma has taken over SIGTERM already and has no server yet to stop: an exception in the middle of
# loading a framework may get lost there. Until the worker is ready, the signal just ends it.
pumas_answer = trap("TERM", "SYSTEM_DEFAULT")

require_relative "config/environment"
require_relative "lib/ledger"
require_relative "lib/retirement"
require_relative "lib/rehearsal"

rehearse(Rails.application)

trap("TERM", pumas_answer)
ledger = Ledger.new(File.join(ENV.fetch("DIRECTORY_SCRATCH"), "ledger"))
use Retirement, ledger: ledger, after: Integer(ENV.fetch("DIRECTORY_RESTART_EVERY"))
run Rails.application
