# One worker: a puma of its own, started by the supervisor, which hands it the listening socket.
threads_count = Integer(ENV.fetch("DIRECTORY_THREADS"))

environment "production"
directory File.expand_path("..", __dir__)
threads threads_count, threads_count
bind "tcp://127.0.0.1:#{ENV.fetch("DIRECTORY_PORT")}"
quiet
# Leaving when told to is no failure.
raise_exception_on_sigterm false
