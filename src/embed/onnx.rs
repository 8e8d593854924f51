//! ONNX Runtime, loaded at run time, so that one binary works with and without it.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use ort::environment::Environment;
use ort::session::Session;
use ort::session::builder::GraphOptimizationLevel;
use ort::value::Tensor;
use sha2::{Digest, Sha256};
use tokenizers::Tokenizer;
use tokenizers::utils::truncation::TruncationParams;

use super::coverage::Coverage;
use super::pooling::pool;
use super::{Backend, Prepared};
use crate::config::{Device, Encoder as Settings, Pooling};
use crate::error::{Code, Error, Result};

/// A BERT-family sentence encoder (the L2 norm follows in quantisation).
pub struct Onnx {
    session: Session,
    tokenizer: Tokenizer,
    identity: String,
    dimension: usize,
    max_pieces: usize,
    pooling: Pooling,
    coverage: Coverage,
    with_types: bool,
}

impl std::fmt::Debug for Onnx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Onnx").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// One environment a process; the first library path wins.
static ENVIRONMENT: OnceLock<std::result::Result<Environment, String>> = OnceLock::new();

impl Onnx {
    /// Loads runtime, model and tokenizer.
    ///
    /// # Errors
    /// `runtime_missing`, `model_missing`, `model_corrupt`, `tokenizer_invalid`, `config_invalid` where settings and
    /// model differ.
    pub fn open(settings: &Settings) -> Result<Self> {
        let model = present(settings.model.as_ref(), "encoder.model", Code::ModelMissing)?;
        let tokenizer_path = present(settings.tokenizer.as_ref(), "encoder.tokenizer", Code::TokenizerInvalid)?;
        let runtime = present(settings.runtime.as_ref(), "encoder.runtime", Code::RuntimeMissing)?;
        let environment = environment(&runtime)?;
        let (tokenizer, tokenizer_hash) = tokenizer(&tokenizer_path, settings.max_pieces)?;
        let bytes = std::fs::read(&model)
            .map_err(|e| Error::with(Code::ModelMissing, format!("can't read {}", model.display()), e))?;
        let (session, device) = session(environment, &model, &bytes, settings.device)?;
        fits(&session, settings)?;
        let with_types = session.inputs().iter().any(|i| i.name() == "token_type_ids");
        let special: Vec<u32> = tokenizer.get_added_tokens_decoder().into_keys().collect();
        let coverage = Coverage::new(tokenizer.get_vocab(false), &special, settings.coverage);
        let runtime_name = runtime_version(&runtime);
        let identity = format!(
            "onnx/{}/{}/ort-{runtime_name}/{device}/{}{}",
            &hex::encode(Sha256::digest(&bytes))[..16],
            &tokenizer_hash[..16],
            settings.max_pieces,
            variant(settings)
        );
        Ok(Self {
            session,
            tokenizer,
            identity,
            dimension: settings.dimension,
            max_pieces: settings.max_pieces,
            pooling: settings.pooling,
            coverage,
            with_types,
        })
    }

    fn tensors(&self, batch: &[Prepared], width: usize) -> Result<Vec<(&'static str, Tensor<i64>)>> {
        let shape = [batch.len(), width];
        let padded = |value: &dyn Fn(&Prepared, usize) -> i64| -> Vec<i64> {
            batch
                .iter()
                .flat_map(|p| (0..width).map(|i| if i < p.ids.len() { value(p, i) } else { 0 }).collect::<Vec<_>>())
                .collect()
        };
        let mut inputs =
            vec![("input_ids", padded(&|p, i| i64::from(p.ids[i]))), ("attention_mask", padded(&|_, _| 1))];
        if self.with_types {
            inputs.push(("token_type_ids", vec![0; batch.len() * width]));
        }
        inputs
            .into_iter()
            .map(|(name, data)| Tensor::from_array((shape, data)).map(|t| (name, t)).map_err(failed))
            .collect()
    }
}

impl Backend for Onnx {
    fn identity(&self) -> &str {
        &self.identity
    }

    fn dimension(&self) -> usize {
        self.dimension
    }

    fn prepare(&self, text: &str) -> Result<Prepared> {
        let encoding = self
            .tokenizer
            .encode_fast(text, true)
            .map_err(|e| Error::with(Code::EncoderFailed, "the text can't be tokenised", e))?;
        let truncated = !encoding.get_overflowing().is_empty();
        debug_assert!(encoding.len() <= self.max_pieces);
        let covered = truncated || self.coverage.covers(text, encoding.get_ids());
        Ok(Prepared { ids: encoding.get_ids().to_vec(), truncated, covered })
    }

    fn encode(&mut self, batch: &[Prepared]) -> Result<Vec<Vec<f32>>> {
        let width = batch.iter().map(|p| p.ids.len()).max().unwrap_or(0);
        if width == 0 {
            return Ok(batch.iter().map(|_| vec![0.0; self.dimension]).collect());
        }
        let inputs = self.tensors(batch, width)?;
        let outputs = self.session.run(inputs).map_err(failed)?;
        let (shape, data) = outputs[0].try_extract_tensor::<f32>().map_err(failed)?;
        pool(batch, width, self.dimension, self.pooling, shape, data)
    }
}

/// What the identity says beyond model, tokenizer, runtime and length; nothing for the defaults.
fn variant(settings: &Settings) -> String {
    let pooling = match settings.pooling {
        Pooling::Mean => "",
        Pooling::Cls => "/cls",
        Pooling::Model => "/pooled",
    };
    if settings.query_prefix.is_empty() && settings.passage_prefix.is_empty() {
        return pooling.to_owned();
    }
    let prefixes = Sha256::digest(format!("{}\n{}", settings.query_prefix, settings.passage_prefix));
    format!("{pooling}/prefix-{}", &hex::encode(prefixes)[..8])
}

/// Settings and model must agree, where the model says its sizes.
fn fits(session: &Session, settings: &Settings) -> Result<()> {
    let Some(shape) = session.outputs().first().and_then(|o| o.dtype().tensor_shape().map(|s| s.to_vec())) else {
        return Ok(());
    };
    let rank = if settings.pooling == Pooling::Model { 2 } else { 3 };
    let width = shape.last().copied().unwrap_or(-1);
    let dimension = i64::try_from(settings.dimension).unwrap_or(i64::MAX);
    if shape.len() == rank && (width < 0 || width == dimension) {
        return Ok(());
    }
    let message = format!(
        "the model's output is {shape:?}: encoder.dimension is {dimension}, and encoder.pooling asks for {rank} axes"
    );
    Err(Error::new(Code::ConfigInvalid, message))
}

/// A session on the device that the settings name, and the device's name.
fn session(environment: &'static Environment, model: &Path, bytes: &[u8], device: Device) -> Result<(Session, String)> {
    let cpu = || format!("cpu-{}", cpu_class());
    let corrupt = |e: String| Error::with(Code::ModelCorrupt, format!("{} can't be loaded", model.display()), e);
    if device == Device::Cpu {
        return Ok((build(environment, bytes, None).map_err(corrupt)?, cpu()));
    }
    let provider = ort::ep::CUDA::default().with_device_id(0).build().error_on_failure();
    match build(environment, bytes, Some(provider)) {
        Ok(session) => Ok((session, "cuda".to_owned())),
        Err(e) if device == Device::Auto => {
            let session = build(environment, bytes, None).map_err(corrupt)?;
            tracing::warn!(reason = first_line(&e), "encoder.device auto: no CUDA here, the encoder runs on the CPU");
            Ok((session, cpu()))
        }
        Err(e) => Err(Error::with(Code::RuntimeMissing, "encoder.device is cuda, and ONNX Runtime can't use one", e)),
    }
}

fn build(
    environment: &'static Environment,
    bytes: &[u8],
    provider: Option<ort::ep::ExecutionProviderDispatch>,
) -> std::result::Result<Session, String> {
    let text = |e: &dyn std::fmt::Display| e.to_string();
    let mut builder = Session::builder(environment)
        .map_err(|e| text(&e))?
        .with_intra_threads(1)
        .map_err(|e| text(&e))?
        .with_optimization_level(GraphOptimizationLevel::Level3)
        .map_err(|e| text(&e))?;
    if let Some(provider) = provider {
        builder = builder.with_execution_providers([provider]).map_err(|e| text(&e))?;
    }
    builder.commit_from_memory(bytes).map_err(|e| text(&e))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

fn failed(e: ort::Error) -> Error {
    Error::with(Code::EncoderFailed, "ONNX Runtime refused a batch", e.to_string())
}

fn present(path: Option<&PathBuf>, name: &str, code: Code) -> Result<PathBuf> {
    match path {
        None => Err(Error::new(code, format!("{name} is not set"))),
        Some(p) if !p.is_file() => Err(Error::new(code, format!("{name}: {} is not a file", p.display()))),
        Some(p) => Ok(p.clone()),
    }
}

fn environment(runtime: &Path) -> Result<&'static Environment> {
    let made = ENVIRONMENT.get_or_init(|| {
        // ort panics on a library of the wrong kind in places; a panic here must not end the process.
        std::panic::catch_unwind(|| {
            ort::init_from(runtime).map_err(|e| e.to_string())?.build().map_err(|e| e.to_string())
        })
        .unwrap_or_else(|_| Err("the library can't be loaded".to_owned()))
    });
    made.as_ref()
        .map_err(|e| Error::with(Code::RuntimeMissing, format!("{} can't be loaded", runtime.display()), e.clone()))
}

fn tokenizer(path: &Path, max_pieces: usize) -> Result<(Tokenizer, String)> {
    let invalid = |e: String| Error::with(Code::TokenizerInvalid, format!("{} can't be used", path.display()), e);
    let bytes = std::fs::read(path).map_err(|e| invalid(e.to_string()))?;
    let mut tokenizer = Tokenizer::from_bytes(&bytes).map_err(|e| invalid(e.to_string()))?;
    // Files carry their own truncation and padding (128 in the published MiniLM): ours replace both.
    tokenizer.with_padding(None);
    tokenizer
        .with_truncation(Some(TruncationParams { max_length: max_pieces, ..TruncationParams::default() }))
        .map_err(|e| invalid(e.to_string()))?;
    Ok((tokenizer, hex::encode(Sha256::digest(&bytes))))
}

/// `libonnxruntime.so.1.32.0` or the folder's name carries the version; the file's hash is the fallback.
fn runtime_version(runtime: &Path) -> String {
    let folder = runtime.parent().and_then(Path::file_name).map(|n| n.to_string_lossy().into_owned());
    match folder.filter(|n| n.starts_with(|c: char| c.is_ascii_digit())) {
        Some(version) => version,
        None => std::fs::read(runtime).map(|b| hex::encode(&Sha256::digest(b)[..4])).unwrap_or_default(),
    }
}

/// Instruction sets that change the runtime's kernels.
fn cpu_class() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512vnni") {
            return "x86-avx512vnni";
        }
        if std::arch::is_x86_feature_detected!("avx512f") {
            return "x86-avx512";
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return "x86-avx2";
        }
    }
    std::env::consts::ARCH
}
