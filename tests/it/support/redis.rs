//! One server or a cluster behind the same calls, so that a behaviour is written once and the
//! kind of server is a parameter.

use streamfleet::testing::{AofMode, Leak, Reply, ServerKind, TestCluster, TestError, TestServer};

/// What a behaviour is run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Topology {
    /// One server.
    Standalone,
    /// Three masters; the three queues of a test are on three of them.
    Cluster,
}

/// A private server of either kind, with the check for leaks at its end.
#[derive(Debug)]
pub(crate) enum Redis {
    Standalone(Box<TestServer>),
    Cluster(TestCluster),
}

impl Redis {
    pub(crate) async fn start(topology: Topology, aof: AofMode) -> Self {
        Self::start_for(topology, aof, &[]).await
    }

    /// A server on which a test uses these prefixes; without any it is `streamfleet`.
    pub(crate) async fn start_for(topology: Topology, aof: AofMode, prefixes: &[&str]) -> Self {
        match topology {
            Topology::Standalone => {
                let mut options = TestServer::options().aof(aof);
                for prefix in prefixes {
                    options = options.prefix(*prefix);
                }
                Self::Standalone(Box::new(options.start().await.unwrap()))
            }
            Topology::Cluster => {
                let mut options = TestCluster::options().aof(aof);
                for prefix in prefixes {
                    options = options.prefix(*prefix);
                }
                Self::Cluster(options.start().await.unwrap())
            }
        }
    }

    /// Starts a server, runs the behaviour, and checks that nothing is left.
    pub(crate) async fn run(topology: Topology, behaviour: impl AsyncFnOnce(&Self)) {
        let redis = Self::start(topology, AofMode::Off).await;
        behaviour(&redis).await;
        redis.finish().await;
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Standalone(server) => server.url(),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    pub(crate) fn kind(&self) -> ServerKind {
        self.nodes()[0].kind()
    }

    /// What it is, in one word.
    pub(crate) fn title(&self) -> String {
        let kind = self.kind().to_string().to_lowercase();
        match self {
            Self::Standalone(_) => kind,
            Self::Cluster(_) => format!("{kind}-cluster"),
        }
    }

    /// The node that holds a key.
    pub(crate) fn node_of(&self, key: &str) -> &TestServer {
        match self {
            Self::Standalone(server) => server,
            Self::Cluster(cluster) => cluster.node_of(key),
        }
    }

    pub(crate) fn version(&self) -> &str {
        self.nodes()[0].version()
    }

    pub(crate) fn nodes(&self) -> &[TestServer] {
        match self {
            Self::Standalone(server) => std::slice::from_ref(&**server),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// Three queue names; on a cluster each is on another node.
    pub(crate) fn queues(&self, name: &str) -> [String; 3] {
        match self {
            Self::Standalone(_) => [0, 1, 2].map(|number| format!("{name}-{number}")),
            Self::Cluster(cluster) => cluster.queues_on_three_nodes(name),
        }
    }

    /// A command on the node that holds a key.
    pub(crate) async fn command_on_key<A: AsRef<[u8]>>(
        &self,
        key: &str,
        args: &[A],
    ) -> Result<Reply, TestError> {
        match self {
            Self::Standalone(server) => server.command(args).await,
            Self::Cluster(cluster) => cluster.command_on_key(key, args).await,
        }
    }

    /// Restarts every node, and waits until they are one cluster again.
    pub(crate) async fn restart(&self) {
        for node in self.nodes() {
            node.kill();
        }
        for node in self.nodes() {
            node.restart().await.unwrap();
        }
        if let Self::Cluster(cluster) = self {
            cluster
                .ready(std::time::Duration::from_secs(30))
                .await
                .unwrap();
        }
    }

    pub(crate) fn allow(&self, leak: Leak, reason: &str) {
        match self {
            Self::Standalone(server) => server.allow(leak, reason),
            Self::Cluster(cluster) => cluster.allow(leak, reason),
        }
    }

    pub(crate) async fn finish(self) {
        match self {
            Self::Standalone(server) => server.finish().await,
            Self::Cluster(cluster) => cluster.finish().await,
        }
    }
}
