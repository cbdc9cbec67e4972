# An entry of the directory.
class Person < ApplicationRecord
  validates :name, :town, presence: true
  validates :phone, format: { with: /\A\+?[\d ]+\z/ }
  validates :email, format: { with: /\A\S+@\S+\z/ }
end
