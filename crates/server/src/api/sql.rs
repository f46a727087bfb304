//! Read-only SQL over the cluster's metadata.

use super::Shared;
use super::extract::Input;
use super::failure::Failure;
use super::types::{SqlQuery, SqlRows};
use axum::Json;
use axum::extract::State;
use serde_json::Value as Json_;
use std::fmt::Write;
use tepal_metadata::{QueryLimits, Value};

pub async fn query(
    State(context): State<Shared>,
    Input(SqlQuery { query }): Input<SqlQuery>,
) -> Result<Json<SqlRows>, Failure> {
    let rows = context.parts.metadata.query(&query, QueryLimits::default()).await?;
    let values = rows.rows.into_iter().map(|row| row.into_iter().map(json).collect()).collect();
    Ok(Json(SqlRows { columns: rows.columns, rows: values }))
}

fn json(value: Value) -> Json_ {
    match value {
        Value::Null => Json_::Null,
        Value::Integer(number) => number.into(),
        // JSON has no NaN and no infinity.
        Value::Real(number) => number.into(),
        Value::Text(text) => text.into(),
        Value::Blob(bytes) => {
            let digits = bytes.iter().fold(String::new(), |mut text, byte| {
                let _ = write!(text, "{byte:02x}"); // a String takes all that is written to it
                text
            });
            format!("x'{digits}'").into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_value_has_its_json() {
        for (value, text) in [
            (Value::Null, "null"),
            (Value::Integer(i64::MIN), "-9223372036854775808"),
            (Value::Real(0.5), "0.5"),
            (Value::Real(f64::NAN), "null"),
            (Value::Text("a\"b".into()), r#""a\"b""#),
            (Value::Blob(vec![0, 0xff]), r#""x'00ff'""#),
        ] {
            assert_eq!(json(value).to_string(), text);
        }
    }
}
