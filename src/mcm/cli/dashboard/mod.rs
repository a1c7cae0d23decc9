//! `mcm dashboard`: a page that only reads, for the user of this computer.

mod door;
mod html;
mod page;
mod view;

use std::{
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context, Result};
use axum::{
    Router,
    extract::{Query, State},
    http::{StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
    routing::get,
};
use clap::Args;
use serde::Deserialize;
use tokio::{net::TcpListener, sync::Mutex, time::Instant};

use self::{
    door::DashboardAddress,
    view::{DashboardView, ServerSilence},
};
use super::{
    events::{self, EventLine},
    reading::ReadingOptions,
    why,
};
use mcm_insight::{
    budget_reader,
    error::error_line,
    memory::{self, Memory},
    read_only::ReadOnly,
    reader,
    story::NamespaceFacts,
};
use mcm_runtime::{http, shutdown};

/// Age up to which a reading is shown again, so that several pages cost as much as one.
const FRESH: Duration = Duration::from_secs(1);
/// Time limit of the first reading, and of the others, without which the last state is shown.
const PATIENCE: Duration = Duration::from_secs(20);
const PATIENCE_WITH_A_STATE: Duration = Duration::from_secs(5);
/// Age up to which the memory of the manager is shown again.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Options of the command.
#[derive(Args, Debug)]
pub struct DashboardOptions {
    #[command(flatten)]
    reading: ReadingOptions,
    /// Port on 127.0.0.1; 0 chooses a free one
    #[arg(long, default_value = "0")]
    port: u16,
}

/// Serves the page until a signal arrives.
///
/// # Errors
/// The control cluster cannot be reached, or the port is taken.
pub async fn run(options: DashboardOptions) -> Result<()> {
    let stop = shutdown::on_signal().context("listen for signals")?;
    let cell = options.reading.open().await?;
    let wanted = SocketAddr::from((Ipv4Addr::LOCALHOST, options.port));
    let listener = TcpListener::bind(wanted).await.with_context(|| format!("listen on {wanted}"))?;
    let address = listener.local_addr().context("read the port")?;
    let door = DashboardAddress::new(address.port());
    writeln!(io::stdout().lock(), "{}\nIt only reads, and only this computer can open it. Ctrl-C ends it.", door.url())
        .context("write to standard output")?;
    let app = router(Arc::new(DashboardApp { cell, readings: Mutex::default() }), door);
    axum::serve(http::for_browser(listener), app)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
        .context("serve the page")
}

struct DashboardApp {
    cell: ReadOnly,
    readings: Mutex<DashboardReadings>,
}

/// The last readings of the cluster.
#[derive(Default)]
struct DashboardReadings {
    tried: Option<Instant>,
    last: Option<Arc<ClusterReading>>,
    /// Every reading after the last one failed.
    silence: Option<ServerSilence>,
    memory: Option<(Instant, Memory)>,
}

/// The result of one look at the cluster.
struct ClusterReading {
    facts: NamespaceFacts,
    notes: Vec<String>,
    events: Vec<EventLine>,
}

impl DashboardApp {
    /// The cluster. If it does not answer, its last state.
    async fn read(&self) -> Result<(Arc<ClusterReading>, Option<ServerSilence>), PageError> {
        let mut readings = self.readings.lock().await;
        let is_fresh = readings.tried.is_some_and(|tried| tried.elapsed() < FRESH);
        if let Some(last) = readings.last.as_ref().filter(|_| is_fresh) {
            return Ok((Arc::clone(last), readings.silence.clone()));
        }
        let patience = if readings.last.is_some() { PATIENCE_WITH_A_STATE } else { PATIENCE };
        let reading = tokio::time::timeout(patience, self.look(&mut readings.memory)).await.unwrap_or_else(|_| {
            Err(anyhow::anyhow!("the control cluster did not answer within {} s", patience.as_secs()))
        });
        readings.tried = Some(Instant::now());
        match (reading, readings.last.clone()) {
            (Ok(reading), _) => {
                let reading = Arc::new(reading);
                (readings.last, readings.silence) = (Some(Arc::clone(&reading)), None);
                Ok((reading, None))
            }
            (Err(error), Some(last)) => {
                let silence = ServerSilence { since: last.facts.now, error: error_line(&error) };
                readings.silence = Some(silence.clone());
                Ok((last, Some(silence)))
            }
            (Err(error), None) => Err(PageError::Cluster(error)),
        }
    }

    /// Reads the cluster, and the memory of its managers, which may be some seconds old.
    async fn look(&self, memory: &mut Option<(Instant, Memory)>) -> Result<ClusterReading> {
        let mut facts = reader::facts(&self.cell).await?;
        facts.memory = match memory.take().filter(|(at, _)| at.elapsed() < REMEMBERED) {
            Some((at, known)) => memory.insert((at, known)).1.clone(),
            None => {
                let asked = memory::ask(&self.cell, &facts.managers, None).await;
                memory.insert((Instant::now(), asked)).1.clone()
            }
        };
        facts.budgets = budget_reader::awaited(&self.cell, &facts).await;
        let mut notes = reader::notes(&self.cell, &facts);
        let events = match events::lines(&self.cell, &facts, None).await {
            Ok((events, more)) => {
                notes.extend(more);
                events
            }
            Err(error) => {
                notes.push(format!("events could not be read: {}", error_line(&error)));
                Vec::new()
            }
        };
        Ok(ClusterReading { facts, notes, events })
    }
}

fn router(app: Arc<DashboardApp>, door: DashboardAddress) -> Router {
    let at = |path: &str| format!("/{}/{path}", door.token());
    Router::new()
        .route(&at(""), get(index))
        .route(&at("style.css"), get(|| async { ([(header::CONTENT_TYPE, "text/css; charset=utf-8")], STYLE) }))
        .route(&at("script.js"), get(|| async { ([(header::CONTENT_TYPE, "text/javascript; charset=utf-8")], SCRIPT) }))
        .route(&at("api/why"), get(api_why))
        .fallback(|| async { StatusCode::NOT_FOUND })
        .layer(middleware::from_fn_with_state(Arc::new(door), door::guard))
        .layer(middleware::map_response(http::last_answer))
        .with_state(app)
}

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// A page that cannot be shown.
enum PageError {
    Cluster(anyhow::Error),
    Unknown(String),
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let (status, text) = match self {
            Self::Cluster(error) => (StatusCode::SERVICE_UNAVAILABLE, error_line(&error)),
            Self::Unknown(text) => (StatusCode::NOT_FOUND, text),
        };
        (status, [(header::CONTENT_TYPE, HTML)], page::failure(&text)).into_response()
    }
}

const HTML: &str = "text/html; charset=utf-8";

#[derive(Deserialize)]
struct PageQuery {
    deployment: Option<String>,
    object: Option<String>,
}

async fn index(State(app): State<Arc<DashboardApp>>, Query(chosen): Query<PageQuery>) -> Result<Response, PageError> {
    let (reading, silence) = app.read().await?;
    let chosen_name = chosen.deployment.as_deref();
    let view = DashboardView::from_facts(&reading.facts, &reading.events, &reading.notes, silence, chosen_name);
    if let (None, Some(name)) = (&view.chosen, &chosen.deployment) {
        return Err(PageError::Unknown(format!("there is no MachineDeployment {name} in {}", reading.facts.namespace)));
    }
    Ok(([(header::CONTENT_TYPE, HTML)], page::page(&view)).into_response())
}

/// The same document as that of `mcm why -o json`, for everything that waits or for `?object=`. A program gets no former state.
async fn api_why(State(app): State<Arc<DashboardApp>>, Query(chosen): Query<PageQuery>) -> Result<Response, PageError> {
    let (reading, silence) = app.read().await?;
    if let Some(ServerSilence { since, error }) = silence {
        return Err(PageError::Cluster(anyhow::anyhow!("no answer since {since:.0}: {error}")));
    }
    let answers = match &chosen.object {
        None => reading.facts.all(),
        Some(wanted) => {
            let found = reader::find(&reading.facts, wanted).map_err(|error| PageError::Unknown(error.to_string()))?;
            vec![reading.facts.answer(&found)]
        }
    };
    let text = why::as_json(&answers, &reading.facts, &reading.notes).map_err(PageError::Cluster)?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}
