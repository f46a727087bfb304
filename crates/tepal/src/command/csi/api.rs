//! The driver's way to the cluster's servers.

use super::CsiError;
use crate::cli::Global;
use crate::client::{Client, ClientError};
use crate::command::CommandError;
use crate::locate;
use serde_json::Value;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use tepal_csi::{Api, Code, Failure, Method};

/// The servers that the options name. They are looked for anew when none answers: a folder may name others by then, and a file have
/// another token.
pub struct Servers {
    global: Global,
    token_file: Option<PathBuf>,
    client: RwLock<Arc<Client>>,
}

impl Servers {
    pub fn find(global: &Global, token_file: Option<PathBuf>) -> Result<Servers, CommandError> {
        let client = RwLock::new(Arc::new(look(global, token_file.as_ref())?));
        Ok(Servers { global: global.clone(), token_file, client })
    }

    pub fn client(&self) -> Arc<Client> {
        self.client.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether something was found.
    fn look_again(&self) -> bool {
        let Ok(found) = look(&self.global, self.token_file.as_ref()) else { return false };
        *self.client.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(found);
        true
    }
}

fn look(global: &Global, token_file: Option<&PathBuf>) -> Result<Client, CommandError> {
    // Devices are taken away, and volumes, by what the cluster says.
    let found = locate::client(global)?.wanting_the_latest();
    let Some(path) = token_file else { return Ok(found) };
    let token = std::fs::read_to_string(path).map_err(|error| CsiError::Token { path: path.clone(), error })?;
    Ok(found.with_token(token.trim().to_owned()))
}

impl Api for Servers {
    fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value, Failure> {
        let ask = |client: &Client| match method {
            Method::Get => client.get(path),
            Method::Post => client.post(path, body),
            Method::Delete => client.delete(path),
        };
        let said = ask(&self.client()).or_else(|error| {
            let is_new = (error.is_no_answer() || error.is_token()) && self.look_again();
            // What was perhaps heard isn't said twice.
            let was_heard = matches!(error, ClientError::Lost { .. } | ClientError::TooSlow { .. });
            if is_new && !was_heard { ask(&self.client()) } else { Err(error) }
        });
        said.map_err(failure)
    }
}

pub fn failure(error: ClientError) -> Failure {
    let code = match &error {
        ClientError::Refused { message, kind } => return Failure::refused(*kind, message.clone()),
        ClientError::NoAnswer { .. } | ClientError::Lost { .. } | ClientError::TooSlow { .. } => Code::Unavailable,
        ClientError::Token { .. } => Code::Unauthenticated,
        ClientError::Address(_) | ClientError::Strange { .. } => Code::Internal,
    };
    Failure::new(code, error.to_string())
}
