# One worker: a puma of its own, started by the supervisor, which hands it the listening socket.
threads_count = Integer(ENV.fetch("DIRECTORY_THREADS"))

environment "production"
directory File.expand_path("..", __dir__)
threads threads_count, threads_count
bind "tcp://127.0.0.1:#{ENV.fetch("DIRECTORY_PORT")}"
quiet
# Its server stops first. Where there is none yet, the exception alone ends the worker.
raise_exception_on_sigterm true
