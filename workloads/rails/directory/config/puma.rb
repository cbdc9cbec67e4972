# One worker: a puma of its own, started by the supervisor, which hands it the listening socket.
threads_count = Integer(ENV.fetch("DIRECTORY_THREADS"))

environment "production"
directory File.expand_path("..", __dir__)
threads threads_count, threads_count
bind "tcp://127.0.0.1:#{ENV.fetch("DIRECTORY_PORT")}"
quiet
# A worker that is told to end while it still starts has no server yet that could stop; only the
# exception ends it. One that serves stops first.
raise_exception_on_sigterm true
