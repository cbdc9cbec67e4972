# Takes the disk out of the measurement: a commit does not wait until it is safe against a power cut.
# This version of Rails has no setting for it, so it is done as each connection is made.
module FastCommits
  private

  def configure_connection
    super
    execute("PRAGMA synchronous = OFF", "SCHEMA")
  end
end

ActiveSupport.on_load(:active_record) do
  require "active_record/connection_adapters/sqlite3_adapter"
  ActiveRecord::ConnectionAdapters::SQLite3Adapter.prepend(FastCommits)
end
