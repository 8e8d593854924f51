//! `topics`: makes and deletes topics for trials of this harness. Hidden: memsluice makes its own.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{Thread, current, park};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication, TopicResult};
use rdkafka::client::DefaultClientContext;

use crate::error::{Doing, Error, Result};
use crate::kafka::{CALL, client, pair};
use crate::out::Out;

/// Make or delete topics for a trial
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  load-tests topics --bootstrap 127.0.0.1:19092 --create roof.committed-memory --set retention.ms=-1\n  \
    load-tests topics --bootstrap 127.0.0.1:19092 --delete roof.committed-memory"
)]
pub(crate) struct Args {
    /// Bootstrap servers, host:port[,...]
    #[arg(long)]
    bootstrap: String,
    /// Topic to make; may be repeated
    #[arg(long)]
    create: Vec<String>,
    /// Topic to delete; may be repeated
    #[arg(long)]
    delete: Vec<String>,
    /// Partitions of each
    #[arg(long, default_value_t = 6)]
    partitions: i32,
    /// A setting of each; may be repeated
    #[arg(long = "set", value_name = "NAME=VALUE", value_parser = pair)]
    settings: Vec<(String, String)>,
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits for a future on this thread.
fn wait<F: Future>(future: F) -> F::Output {
    let waker = Waker::from(Arc::new(Unpark(current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => park(),
        }
    }
}

/// Runs it.
pub(crate) fn run(args: &Args, out: &Out) -> Result<bool> {
    if !args.delete.is_empty() {
        delete(&args.bootstrap, &args.delete)?;
    }
    if !args.create.is_empty() {
        create(&args.bootstrap, &args.create, args.partitions, &args.settings)?;
    }
    out.result(&(&args.create, &args.delete), || format!("{} made, {} deleted", args.create.len(), args.delete.len()))?;
    Ok(true)
}

fn admin(bootstrap: &str) -> Result<(AdminClient<DefaultClientContext>, AdminOptions)> {
    let options = AdminOptions::new().operation_timeout(Some(CALL)).request_timeout(Some(CALL));
    Ok((client(bootstrap, &[]).create().doing("making an admin client")?, options))
}

/// Makes topics of one replica.
pub(crate) fn create(bootstrap: &str, names: &[String], partitions: i32, settings: &[(String, String)]) -> Result<()> {
    let (admin, options) = admin(bootstrap)?;
    let topic = |name| NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let topics: Vec<NewTopic<'_>> =
        names.iter().map(|name| settings.iter().fold(topic(name), |t, (k, v)| t.set(k, v))).collect();
    all(wait(admin.create_topics(&topics, &options)).doing("making topics")?)
}

/// Deletes topics.
pub(crate) fn delete(bootstrap: &str, names: &[String]) -> Result<()> {
    let (admin, options) = admin(bootstrap)?;
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    all(wait(admin.delete_topics(&names, &options)).doing("deleting topics")?)
}

fn all(results: Vec<TopicResult>) -> Result<()> {
    match results.into_iter().find_map(std::result::Result::err) {
        Some((topic, code)) => Err(Error::Input(format!("{topic}: {code}"))),
        None => Ok(()),
    }
}
