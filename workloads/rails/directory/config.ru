# What puma serves: the application, behind what counts the worker's requests and makes it retire.
require_relative "config/environment"
require_relative "lib/ledger"
require_relative "lib/retirement"
require_relative "lib/rehearsal"

rehearse(Rails.application)

ledger = Ledger.new(File.join(ENV.fetch("DIRECTORY_SCRATCH"), "ledger"))
use Retirement, ledger: ledger, after: Integer(ENV.fetch("DIRECTORY_RESTART_EVERY"))
run Rails.application
