// Objects in V8's heap.
const kept = [];
for (let i = 0; i < 4_000_000; i++) kept.push({ number: i, name: `name ${i}` });
console.log("ready");
process.stdin.on("end", () => console.log(kept.length)).resume();
