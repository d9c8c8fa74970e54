// node llama_cpp.mjs LIBRARY < {"model": path, "texts": [...], "sequences": [[id, ...], ...], "begun": [[id, ...], ...], "tokens": number}
// prints {"release": ..., "ids": tokens of the texts, "logprobs": of all tokens of each sequence but the first, "continuations": of those begun}
import fs from "node:fs";
import {pathToFileURL} from "node:url";

const {getLlama} = await import(pathToFileURL(process.argv[2]));
const asked = JSON.parse(fs.readFileSync(0, "utf8"));
const llama = await getLlama({gpu: false, build: "never", skipDownload: true, logLevel: "error"});
const model = await llama.loadModel({modelPath: asked.model, gpuLayers: 0});
const context = await model.createContext({contextSize: 512, threads: 1});
const sequence = context.getSequence();
const answer = {release: llama.llamaCppRelease.release, ids: [], logprobs: [], continuations: []};
for (const text of asked.texts)
    answer.ids.push(model.tokenize(text, true));
for (const ids of asked.sequences) {
    await sequence.clearHistory();
    const steps = ids.map((id) => [id, {generateNext: {probabilities: true}}]);
    const found = await sequence.controlledEvaluate(steps);
    answer.logprobs.push(ids.slice(1).map((id, place) => Math.log(found[place].next.probabilities.get(id))));
}
for (const ids of asked.begun) {
    await sequence.clearHistory();
    const written = [];
    for await (const id of sequence.evaluate(ids, {temperature: 0})) {
        written.push(id);
        if (written.length >= asked.tokens)
            break;
    }
    answer.continuations.push(written);
}
console.log(JSON.stringify(answer));
await llama.dispose();
