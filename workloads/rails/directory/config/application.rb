# The application as Rails sees it: the three parts of the framework that a directory needs (records,
# controllers and views), set up as for production. The folder for everything that it writes comes from
# the environment, since the application itself may stand where nobody can write.
require "rails"
require "active_record/railtie"
require "action_controller/railtie"
require "action_view/railtie"

module Directory
  class Application < Rails::Application
    scratch = ENV.fetch("DIRECTORY_SCRATCH")

    config.load_defaults 6.1
    config.root = File.expand_path("..", __dir__)
    config.eager_load = true
    config.cache_classes = true
    config.consider_all_requests_local = false
    config.action_controller.perform_caching = true
    config.active_record.dump_schema_after_migration = false
    # Not a secret: nobody but the driver is ever served, on loopback.
    config.secret_key_base = "telephone-directory" * 8

    config.log_level = :info
    config.paths["log"] = File.join(scratch, "production.log")
    config.paths["tmp"] = File.join(scratch, "tmp")
  end
end
