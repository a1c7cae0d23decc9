//! Tools that drivers of real clouds share. All are pure but [`client`] and [`rest`], which send requests,
//! [`coalesce`], which joins look-ups that wait at the same time, [`creations`], which runs one creation at a time for a Machine,
//! [`credential_file`], which reads tokens, [`limiter`], which paces calls, [`recent`], which remembers accounts, [`requests`],
//! which measures, and [`tls`], which makes connections.

#![cfg_attr(
    not(all(feature = "aws", feature = "gcp", feature = "metal-stack")),
    allow(unused_imports, reason = "a driver uses only a part of what all share")
)]

#[cfg(test)]
#[path = "../../../tests/clouds/bootstrap/mod.rs"]
pub(crate) mod bootstrap;
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
mod pages;
mod provider_id;
mod recent;
mod requests;
mod rest;
mod secret;
#[cfg(test)]
pub(crate) mod testing;
mod text;
mod tls;
mod token;
mod wanted;

pub(crate) use class::check_provider;
pub(crate) use client::{Http, Limits};
#[cfg(feature = "aws")]
pub(crate) use client::{LARGEST, pause_of};
#[cfg(any(feature = "aws", feature = "gcp"))]
pub(crate) use client::{causes, find};
#[cfg(feature = "gcp")]
pub(crate) use client::{failed, retry_after};
pub(crate) use coalesce::Coalescer;
pub(crate) use creations::Creations;
pub(crate) use credential_file::read_credential_file;
pub(crate) use failure::Failure;
#[cfg(feature = "gcp")]
pub(crate) use fields::choice;
pub(crate) use fields::{filled, is_word, number};
#[cfg(feature = "aws")]
pub(crate) use fields::{known, required_known};
pub(crate) use finder::{Belonging, CloudVm, created_for, known_as, only};
pub(crate) use http::code_of_status;
#[cfg(feature = "gcp")]
pub(crate) use limiter::Limiter;
pub(crate) use limiter::Limiters;
pub(crate) use markers::{MarkerNames, Markers};
pub(crate) use pages::Pages;
pub(crate) use provider_id::ProviderIds;
pub(crate) use recent::Recent;
pub(crate) use requests::Requests;
#[cfg(test)]
pub(crate) use requests::recording;
pub(crate) use rest::{Authentication, Bearer, Call, Rest, Unsigned};
pub(crate) use secret::Secrets;
pub(crate) use text::safe_text;
#[cfg(feature = "gcp")]
pub(crate) use tls::AGENT;
pub(crate) use tls::{Connections, TlsOptions};
pub(crate) use token::idempotency_token;
pub(crate) use wanted::Wanted;
