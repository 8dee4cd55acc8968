//! The forward pass of a sentence model with the BERT architecture, such as all-MiniLM-L6-v2.
//!
//! Each column of a matrix is one token. All sequences of a batch have the same length, so nothing
//! is masked.

use nalgebra::{DMatrix, DVector};

use super::safetensors::Tensors;

/// A constant that prevents a division by zero in normalizations.
const EPSILON: f32 = 1e-12;

/// A linear map with an offset.
struct Linear {
    weight: DMatrix<f32>,
    bias: DVector<f32>,
}

/// A normalization of each column.
struct Norm {
    weight: DVector<f32>,
    bias: DVector<f32>,
}

struct Layer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: Norm,
    wide: Linear,
    narrow: Linear,
    output_norm: Norm,
}

/// A sentence model.
pub(super) struct Encoder {
    /// One column for each token of the vocabulary.
    words: DMatrix<f32>,
    places: DMatrix<f32>,
    norm: Norm,
    layers: Vec<Layer>,
    heads: usize,
}

impl Encoder {
    /// Reads the weights of a model with this number of layers and attention heads.
    pub(super) fn of(tensors: &Tensors<'_>, layers: usize, heads: usize) -> Result<Self, String> {
        let words = tensors.matrix("embeddings.word_embeddings.weight")?.transpose();
        let mut places = tensors.matrix("embeddings.position_embeddings.weight")?.transpose();
        let kinds = tensors.matrix("embeddings.token_type_embeddings.weight")?.transpose();
        if heads == 0 || words.nrows() % heads != 0 || places.nrows() != words.nrows() {
            return Err("its layer sizes do not match".to_owned());
        }
        // All tokens of a single sequence have the first type.
        places.column_iter_mut().for_each(|mut place| place += kinds.column(0));
        let layer = |at: usize| Layer::of(tensors, &format!("encoder.layer.{at}"));
        Ok(Self {
            words,
            places,
            norm: Norm::of(tensors, "embeddings.LayerNorm")?,
            layers: (0..layers).map(layer).collect::<Result<_, _>>()?,
            heads,
        })
    }

    /// Returns the number of tokens in the vocabulary.
    pub(super) fn vocabulary(&self) -> usize {
        self.words.ncols()
    }

    /// Returns one column for each sequence: the mean of its outputs. All sequences have `length`
    /// tokens.
    pub(super) fn encode(&self, tokens: &[usize], length: usize) -> DMatrix<f32> {
        let token = |(at, token): (usize, &usize)| {
            self.words.column(*token) + self.places.column(at % length)
        };
        let mut x =
            DMatrix::from_columns(&tokens.iter().enumerate().map(token).collect::<Vec<_>>());
        self.norm.apply(&mut x);
        for layer in &self.layers {
            let mixed = layer.attend(&x, length, self.heads);
            x += layer.attended.apply(&mixed);
            layer.attended_norm.apply(&mut x);
            let mut wide = layer.wide.apply(&x);
            wide.apply(|value| *value = gelu(*value));
            x += layer.narrow.apply(&wide);
            layer.output_norm.apply(&mut x);
        }
        let means =
            (0..tokens.len() / length).map(|at| x.columns(at * length, length).column_mean());
        DMatrix::from_columns(&means.collect::<Vec<_>>())
    }
}

impl Layer {
    fn of(tensors: &Tensors<'_>, name: &str) -> Result<Self, String> {
        let linear = |part: &str| Linear::of(tensors, &format!("{name}.{part}"));
        let norm = |part: &str| Norm::of(tensors, &format!("{name}.{part}"));
        Ok(Self {
            query: linear("attention.self.query")?,
            key: linear("attention.self.key")?,
            value: linear("attention.self.value")?,
            attended: linear("attention.output.dense")?,
            attended_norm: norm("attention.output.LayerNorm")?,
            wide: linear("intermediate.dense")?,
            narrow: linear("output.dense")?,
            output_norm: norm("output.LayerNorm")?,
        })
    }

    /// Mixes the values of the tokens of each sequence, separately for each head.
    fn attend(&self, x: &DMatrix<f32>, length: usize, heads: usize) -> DMatrix<f32> {
        let (query, key, value) = (self.query.apply(x), self.key.apply(x), self.value.apply(x));
        let size = x.nrows() / heads;
        let mut mixed = DMatrix::zeros(x.nrows(), x.ncols());
        for start in (0..x.ncols()).step_by(length) {
            for head in (0..x.nrows()).step_by(size) {
                let (at, shape) = ((head, start), (size, length));
                let mut weights = key.view(at, shape).transpose() * query.view(at, shape);
                weights /= (size as f32).sqrt();
                for mut column in weights.column_iter_mut() {
                    let most = column.max();
                    column.apply(|weight| *weight = (*weight - most).exp());
                    let sum = column.sum();
                    column /= sum;
                }
                mixed.view_mut(at, shape).copy_from(&(value.view(at, shape) * weights));
            }
        }
        mixed
    }
}

impl Linear {
    fn of(tensors: &Tensors<'_>, name: &str) -> Result<Self, String> {
        let weight = tensors.matrix(&format!("{name}.weight"))?;
        Ok(Self { weight, bias: tensors.vector(&format!("{name}.bias"))? })
    }

    fn apply(&self, x: &DMatrix<f32>) -> DMatrix<f32> {
        let mut y = &self.weight * x;
        y.column_iter_mut().for_each(|mut column| column += &self.bias);
        y
    }
}

impl Norm {
    fn of(tensors: &Tensors<'_>, name: &str) -> Result<Self, String> {
        let weight = tensors.vector(&format!("{name}.weight"))?;
        Ok(Self { weight, bias: tensors.vector(&format!("{name}.bias"))? })
    }

    fn apply(&self, x: &mut DMatrix<f32>) {
        for mut column in x.column_iter_mut() {
            column.add_scalar_mut(-column.mean());
            let deviation = (column.norm_squared() / column.len() as f32 + EPSILON).sqrt();
            column /= deviation;
            column.component_mul_assign(&self.weight);
            column += &self.bias;
        }
    }
}

/// Computes the activation of the wide layers, using the error function approximation of Abramowitz
/// and Stegun (7.1.26).
fn gelu(x: f32) -> f32 {
    let z = x.abs() * std::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / 0.327_591_1_f32.mul_add(z, 1.0);
    let terms = [1.061_405_4, -1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6];
    let sum = terms.iter().fold(0.0, |sum: f32, term| sum.mul_add(t, *term)) * t;
    let erf = (1.0 - sum * (-z * z).exp()).copysign(x);
    0.5 * x * (1.0 + erf)
}
