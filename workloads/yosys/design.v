// The circuit of `yosys` and `nextpnr`: a ring of small processors, a hash and a filter.
//
// Each core runs a program that is fixed in its logic (a table of instructions), works on a register
// file and passes what it finds to the next core; the hash mixes what the ring puts out, and a filter
// of shifts and adders smooths it. -D CORES=N makes N cores: the size of the design.

`ifndef CORES
`define CORES 4
`endif

// ---- One processor: 16-bit, 16 registers, fetch and execute in turn ----

module alu (
    input  wire [3:0]  operation,
    input  wire [15:0] a,
    input  wire [15:0] b,
    output reg  [15:0] result
);
  always @* begin
    case (operation)
      4'd0: result = a + b;
      4'd1: result = a - b;
      4'd2: result = a & b;
      4'd3: result = a | b;
      4'd4: result = a ^ b;
      4'd5: result = a << b[3:0];
      4'd6: result = a >> b[3:0];
      4'd7: result = {15'd0, a < b};
      4'd8: result = {15'd0, $signed(a) < $signed(b)};
      4'd9: result = {a[7:0], a[15:8]};
      4'd10: result = a[7:0] * b[7:0];
      4'd11: result = {a[0], a[15:1]};
      4'd12: result = (a == b) ? 16'hffff : 16'h0000;
      4'd13: result = ~a;
      4'd14: result = b;
      default: result = a;
    endcase
  end
endmodule

module core #(
    parameter [15:0] SEED = 16'h1
) (
    input  wire        clock,
    input  wire        reset,
    input  wire [15:0] from_left,
    output reg  [15:0] to_right
);
  reg [15:0] registers[0:15];
  reg [7:0] place;
  reg [15:0] a, b;
  reg [15:0] instruction;
  reg [1:0] phase;
  wire [15:0] result;

  // The program: a word that depends on the place in it and on the core.
  function [15:0] word_at(input [7:0] at);
    word_at = {at[3:0] ^ SEED[3:0], at[7:4] + SEED[7:4], at[5:2] ^ SEED[11:8], at[4:1] + at[7:4]};
  endfunction

  alu unit (
      .operation(instruction[15:12]),
      .a(a),
      .b(b),
      .result(result)
  );

  always @(posedge clock) begin
    if (reset) begin
      place <= 8'd0;
      phase <= 2'd0;
      to_right <= SEED;
    end else begin
      phase <= phase + 2'd1;
      case (phase)
        2'd0: instruction <= word_at(place);
        2'd1: begin
          a <= registers[instruction[11:8]];
          b <= (instruction[3:0] == 4'd0) ? from_left : registers[instruction[7:4]];
        end
        2'd2: registers[instruction[3:0]] <= result;
        default: begin
          to_right <= to_right ^ result;
          place <= (result[0] && instruction[12]) ? place + {4'd0, instruction[7:4]} : place + 8'd1;
        end
      endcase
    end
  end
endmodule

// ---- Rounds of a hash in the manner of SHA-256, one a clock ----

module mixer (
    input  wire        clock,
    input  wire        reset,
    input  wire [31:0] word,
    output wire [31:0] digest
);
  reg [31:0] a, b, c, d, e, f, g, h;
  wire [31:0] sum0 = {a[1:0], a[31:2]} ^ {a[12:0], a[31:13]} ^ {a[21:0], a[31:22]};
  wire [31:0] sum1 = {e[5:0], e[31:6]} ^ {e[10:0], e[31:11]} ^ {e[24:0], e[31:25]};
  wire [31:0] choice = (e & f) ^ (~e & g);
  wire [31:0] majority = (a & b) ^ (a & c) ^ (b & c);
  wire [31:0] first = h + sum1 + choice + word;

  always @(posedge clock) begin
    if (reset) begin
      {a, b, c, d} <= {32'h01234567, 32'h89abcdef, 32'hfedcba98, 32'h76543210};
      {e, f, g, h} <= {32'h0f1e2d3c, 32'h4b5a6978, 32'h8796a5b4, 32'hc3d2e1f0};
    end else begin
      {h, g, f} <= {g, f, e};
      e <= d + first;
      {d, c, b} <= {c, b, a};
      a <= first + sum0 + majority;
    end
  end
  assign digest = a ^ h;
endmodule

// ---- A filter of eight taps, whose factors are sums of two powers of two ----

module filter (
    input  wire        clock,
    input  wire [15:0] sample,
    output reg  [23:0] smooth
);
  reg [15:0] taps[0:7];
  integer n;
  reg [23:0] sum;

  always @* begin
    sum = 24'd0;
    for (n = 0; n < 8; n = n + 1) sum = sum + ({8'd0, taps[n]} << (n % 5)) + {8'd0, taps[n]};
  end

  always @(posedge clock) begin
    taps[0] <= sample;
    for (n = 1; n < 8; n = n + 1) taps[n] <= taps[n-1];
    smooth <= sum;
  end
endmodule

// ---- The whole: few pins, so that it fits a small device's package ----

module top (
    input  wire       clock,
    input  wire       reset,
    input  wire [7:0] in,
    output wire [7:0] out
);
  wire [15:0] ring[0:`CORES];
  wire [31:0] digest;
  wire [23:0] smooth;

  assign ring[0] = {in, smooth[15:8]};
  genvar n;
  generate
    for (n = 0; n < `CORES; n = n + 1) begin : cores
      core #(
          .SEED(16'h9e37 * (n + 1))
      ) one (
          .clock(clock),
          .reset(reset),
          .from_left(ring[n]),
          .to_right(ring[n+1])
      );
    end
  endgenerate

  mixer hash (
      .clock(clock),
      .reset(reset),
      .word({ring[`CORES], in, smooth[7:0]}),
      .digest(digest)
  );
  filter smoother (
      .clock(clock),
      .sample(digest[15:0]),
      .smooth(smooth)
  );
  assign out = smooth[23:16] ^ digest[31:24];
endmodule
