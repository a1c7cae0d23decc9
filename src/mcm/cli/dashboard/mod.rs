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

use self::{door::DashboardAddress, view::DashboardView};
use super::{
    events::{self, EventLine},
    reading::ReadingOptions,
    why,
};
use mcm_insight::{error::error_line, read_only::ReadOnly, reader, story::NamespaceFacts};
use mcm_runtime::{http, shutdown};

/// Age up to which a reading is shown again, so that several pages cost as much as one.
const FRESH: Duration = Duration::from_secs(1);
/// Time limit of one reading.
const PATIENCE: Duration = Duration::from_secs(20);

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
    let app = router(Arc::new(DashboardApp { cell, last: Mutex::default() }), door);
    axum::serve(http::for_browser(listener), app)
        .with_graceful_shutdown(stop.cancelled_owned())
        .await
        .context("serve the page")
}

struct DashboardApp {
    cell: ReadOnly,
    last: Mutex<Option<(Instant, Arc<ClusterReading>)>>,
}

/// The result of one look at the cluster.
struct ClusterReading {
    facts: NamespaceFacts,
    notes: Vec<String>,
    events: Vec<EventLine>,
}

impl DashboardApp {
    async fn read(&self) -> Result<Arc<ClusterReading>, PageError> {
        let mut last = self.last.lock().await;
        if let Some((at, reading)) = &*last
            && at.elapsed() < FRESH
        {
            return Ok(Arc::clone(reading));
        }
        let reading = async {
            let facts = reader::facts(&self.cell).await?;
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
            Ok(Arc::new(ClusterReading { facts, notes, events }))
        };
        let reading = tokio::time::timeout(PATIENCE, reading).await.unwrap_or_else(|_| {
            Err(anyhow::anyhow!("the control cluster did not answer within {} s", PATIENCE.as_secs()))
        });
        let reading = reading.map_err(PageError::Cluster)?;
        *last = Some((Instant::now(), Arc::clone(&reading)));
        Ok(reading)
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
    let reading = app.read().await?;
    let view = DashboardView::from_facts(&reading.facts, &reading.events, &reading.notes, chosen.deployment.as_deref());
    if let (None, Some(name)) = (&view.chosen, &chosen.deployment) {
        return Err(PageError::Unknown(format!("there is no MachineDeployment {name} in {}", reading.facts.namespace)));
    }
    Ok(([(header::CONTENT_TYPE, HTML)], page::page(&view)).into_response())
}

/// The same document as that of `mcm why -o json`, for everything that waits or for `?object=`.
async fn api_why(State(app): State<Arc<DashboardApp>>, Query(chosen): Query<PageQuery>) -> Result<Response, PageError> {
    let reading = app.read().await?;
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
