# The table of all people, the form of one, and its update.
Rails.application.routes.draw do
  resources :people, only: %i[index edit update]
end
