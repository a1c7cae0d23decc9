//! Tools that drivers of real clouds share. All are pure but [`client`] and [`rest`], which send requests,
//! [`coalesce`], which joins look-ups that wait at the same time, [`creations`], which runs one creation at a time for a Machine,
//! [`credential_file`] and [`tokens`], which get tokens, [`limiter`] and [`pace`], which wait, [`recent`], which remembers accounts, [`requests`],
//! which measures, and [`tls`], which makes connections.

mod answer;
mod class;
mod client;
mod coalesce;
mod creations;
mod credential_file;
mod failure;
mod fields;
mod finder;
mod http;
mod limiter;
mod markers;
mod pace;
mod pages;
mod provider_id;
mod recent;
mod requests;
mod rest;
mod secret;
mod text;
mod tls;
mod token;
mod tokens;
mod wanted;

pub use answer::Answer;
pub use class::check_provider;
pub use client::{Http, LARGEST, Limits, causes, failed, find, pause_of, retry_after};
pub use coalesce::Coalescer;
pub use creations::{Creations, Unfinished};
pub use credential_file::read_credential_file;
pub use failure::Failure;
pub use fields::{choice, filled, is_word, known, number, required_known};
pub use finder::{Belonging, CloudVm, created_for, known_as, only};
pub use http::code_of_status;
pub use limiter::{Limiter, Limiters};
pub use markers::{MarkerNames, Markers};
pub use pace::{Pace, until_done};
pub use pages::Pages;
pub use provider_id::ProviderIds;
pub use recent::Recent;
pub use requests::Requests;
pub use rest::{Authentication, Bearer, Call, Effect, FailureOf, Rest, Unsigned};
pub use secret::Secrets;
pub use text::safe_text;
pub use tls::{AGENT, Connections, TlsOptions};
pub use token::idempotency_token;
pub use tokens::{Issued, TokenCache, TokenSource};
pub use wanted::Wanted;
