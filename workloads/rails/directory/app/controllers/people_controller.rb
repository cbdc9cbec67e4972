# Shows the table of all people, the form of one of them, and stores what the form brings.
class PeopleController < ApplicationController
  def index
    @people = Person.order(:name, :id)
  end

  def edit
    @person = Person.find(params[:id])
  end

  def update
    @person = Person.find(params[:id])
    if @person.update(person_params)
      redirect_to people_path, notice: "Saved #{@person.name}."
    else
      render :edit, status: :unprocessable_entity
    end
  end

  private

  def person_params
    params.require(:person).permit(:name, :phone, :email, :town)
  end
end
