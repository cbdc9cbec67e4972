# Asks the application for its pages before the first visitor does, so that what a worker does once in
# its life (compiling views, opening the database) belongs to its start and not to a request.
require "rack/mock"

REHEARSED = ["/people", "/people/1/edit"].freeze

def rehearse(app)
  requests = Rack::MockRequest.new(app)
  REHEARSED.each do |path|
    answer = requests.get(path)
    raise "#{path} answers #{answer.status}: see the log" unless answer.ok?
  end
end
