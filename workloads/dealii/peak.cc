// The program of `dealii`: Poisson's equation in a cube, on a mesh that follows the solution.
//
// The right side is made so that the solution is known: two narrow peaks. Each cycle distributes
// degrees of freedom on a mesh with hanging nodes, assembles and solves the linear system, estimates
// where the error is, and refines and coarsens there. Prints the size and the error of each cycle,
// and whether the error went down as it should.

#include <cmath>
#include <cstdio>

#include <deal.II/base/function.h>
#include <deal.II/base/multithread_info.h>
#include <deal.II/base/quadrature_lib.h>
#include <deal.II/dofs/dof_handler.h>
#include <deal.II/dofs/dof_tools.h>
#include <deal.II/fe/fe_q.h>
#include <deal.II/fe/fe_values.h>
#include <deal.II/grid/grid_generator.h>
#include <deal.II/grid/grid_refinement.h>
#include <deal.II/grid/tria.h>
#include <deal.II/lac/affine_constraints.h>
#include <deal.II/lac/dynamic_sparsity_pattern.h>
#include <deal.II/lac/full_matrix.h>
#include <deal.II/lac/precondition.h>
#include <deal.II/lac/solver_cg.h>
#include <deal.II/lac/sparse_matrix.h>
#include <deal.II/lac/vector.h>
#include <deal.II/numerics/error_estimator.h>
#include <deal.II/numerics/vector_tools.h>

namespace {

using namespace dealii;

constexpr int dim = 3;
constexpr int cycles = 7;
constexpr double width = 0.08;  // of the peaks, squared
const Point<dim> peaks[] = {{0.4, 0.3, 0.2}, {-0.5, -0.1, -0.4}};

class Solution : public Function<dim> {
 public:
  double value(const Point<dim>& at, unsigned int = 0) const override {
    double sum = 0;
    for (const auto& peak : peaks) sum += std::exp(-at.distance_square(peak) / width);
    return sum;
  }
};

// Minus the Laplacian of the solution.
class Source : public Function<dim> {
 public:
  double value(const Point<dim>& at, unsigned int = 0) const override {
    double sum = 0;
    for (const auto& peak : peaks) {
      const double square = at.distance_square(peak);
      sum += (2 * dim / width - 4 * square / (width * width)) * std::exp(-square / width);
    }
    return sum;
  }
};

class Problem {
 public:
  Problem() : element_(2), handler_(mesh_) {
    GridGenerator::hyper_cube(mesh_, -1, 1);
    mesh_.refine_global(3);
  }

  // Returns the error in L2.
  double cycle() {
    distribute();
    assemble();
    const unsigned int steps = solve();
    const double error = error_of_solution();
    std::printf("cells %u, unknowns %u, steps %u, error %.3e\n", mesh_.n_active_cells(),
                handler_.n_dofs(), steps, error);
    return error;
  }

  void refine() {
    Vector<float> estimates(mesh_.n_active_cells());
    KellyErrorEstimator<dim>::estimate(handler_, QGauss<dim - 1>(3), {}, solution_, estimates);
    GridRefinement::refine_and_coarsen_fixed_number(mesh_, estimates, 0.12, 0.03);
    mesh_.execute_coarsening_and_refinement();
  }

 private:
  void distribute() {
    handler_.distribute_dofs(element_);
    constraints_.clear();
    DoFTools::make_hanging_node_constraints(handler_, constraints_);
    VectorTools::interpolate_boundary_values(handler_, 0, Solution(), constraints_);
    constraints_.close();
    DynamicSparsityPattern dynamic(handler_.n_dofs());
    DoFTools::make_sparsity_pattern(handler_, dynamic, constraints_, false);
    matrix_.clear();
    pattern_.copy_from(dynamic);
    matrix_.reinit(pattern_);
    solution_.reinit(handler_.n_dofs());
    right_side_.reinit(handler_.n_dofs());
  }

  void assemble() {
    const QGauss<dim> quadrature(3);
    FEValues<dim> values(element_, quadrature,
                         update_values | update_gradients | update_quadrature_points | update_JxW_values);
    const unsigned int count = element_.n_dofs_per_cell();
    FullMatrix<double> local(count, count);
    Vector<double> local_right(count);
    std::vector<types::global_dof_index> indices(count);
    const Source source;
    for (const auto& cell : handler_.active_cell_iterators()) {
      values.reinit(cell);
      local = 0;
      local_right = 0;
      for (const unsigned int q : values.quadrature_point_indices()) {
        const double f = source.value(values.quadrature_point(q));
        for (unsigned int i = 0; i < count; ++i) {
          for (unsigned int j = 0; j < count; ++j)
            local(i, j) += values.shape_grad(i, q) * values.shape_grad(j, q) * values.JxW(q);
          local_right(i) += values.shape_value(i, q) * f * values.JxW(q);
        }
      }
      cell->get_dof_indices(indices);
      constraints_.distribute_local_to_global(local, local_right, indices, matrix_, right_side_);
    }
  }

  unsigned int solve() {
    SolverControl control(2000, 1e-9 * right_side_.l2_norm());
    SolverCG<Vector<double>> solver(control);
    PreconditionSSOR<SparseMatrix<double>> preconditioner;
    preconditioner.initialize(matrix_, 1.2);
    solver.solve(matrix_, solution_, right_side_, preconditioner);
    constraints_.distribute(solution_);
    return control.last_step();
  }

  double error_of_solution() {
    Vector<float> errors(mesh_.n_active_cells());
    VectorTools::integrate_difference(handler_, solution_, Solution(), errors, QGauss<dim>(4),
                                      VectorTools::L2_norm);
    return VectorTools::compute_global_error(mesh_, errors, VectorTools::L2_norm);
  }

  Triangulation<dim> mesh_;
  FE_Q<dim> element_;
  DoFHandler<dim> handler_;
  AffineConstraints<double> constraints_;
  SparsityPattern pattern_;
  SparseMatrix<double> matrix_;
  Vector<double> solution_;
  Vector<double> right_side_;
};

}  // namespace

int main() {
  // One thread: sums in one order, the same figures in every run.
  dealii::MultithreadInfo::set_thread_limit(1);
  Problem problem;
  const double first = problem.cycle();
  double last = first;
  for (int n = 1; n < cycles; ++n) {
    problem.refine();
    last = problem.cycle();
  }
  std::puts(last < first / 20 ? "converged" : "the error stays");
  return 0;
}
