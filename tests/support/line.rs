//! A line to the API server on which responses get lost.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
};

/// Passes on all data between a program and a server until it is stopped.
pub struct Line {
    pub address: SocketAddr,
    is_deaf: watch::Sender<bool>,
    lost: Arc<AtomicUsize>,
}

impl Line {
    /// A line to a server, for as long as the test runs.
    pub async fn to(server: SocketAddr) -> Self {
        Self::at(Ipv4Addr::LOCALHOST.into(), server).await
    }

    /// The same at another address of this host.
    pub async fn at(address: IpAddr, server: SocketAddr) -> Self {
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (is_deaf, deafness) = watch::channel(false);
        let lost = Arc::new(AtomicUsize::new(0));
        let losses = Arc::clone(&lost);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, server, deafness.clone(), Arc::clone(&losses)));
            }
        });
        Self { address, is_deaf, lost }
    }

    /// For a time the server gets requests while its responses are dropped; then every connection breaks.
    pub async fn lose_answers(&self, time: Duration) {
        self.is_deaf.send_replace(true);
        tokio::time::sleep(time).await;
        self.is_deaf.send_replace(false);
    }

    /// How many pieces of responses were lost.
    pub fn lost(&self) -> usize {
        self.lost.load(Ordering::Relaxed)
    }
}

async fn carry(
    mut client: TcpStream,
    server: SocketAddr,
    deafness: watch::Receiver<bool>,
    lost: Arc<AtomicUsize>,
) -> io::Result<()> {
    let mut server = TcpStream::connect(server).await?;
    let (mut questions, mut ear) = client.split();
    let (mut answers, mut mouth) = server.split();
    let asking = async { tokio::io::copy(&mut questions, &mut mouth).await.map(drop) };
    let answering = async {
        let mut piece = vec![0; 16 * 1024];
        loop {
            let length = answers.read(&mut piece).await?;
            if length == 0 {
                return Ok(());
            }
            if *deafness.borrow() {
                lost.fetch_add(1, Ordering::Relaxed);
            } else {
                ear.write_all(&piece[..length]).await?;
            }
        }
    };
    let mut end = deafness.clone();
    let breaking = async {
        let _ = end.wait_for(|is_deaf| *is_deaf).await;
        let _ = end.wait_for(|is_deaf| !*is_deaf).await;
        Ok(())
    };
    tokio::select! {
        ended = asking => ended,
        ended = answering => ended,
        ended = breaking => ended,
    }
}
