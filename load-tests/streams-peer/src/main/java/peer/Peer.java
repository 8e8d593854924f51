package peer;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Puts every record into a store; forwards those whose value begins with 'P', the probes. */
public final class Peer {
    private static final class Put implements Processor<byte[], byte[], byte[], byte[]> {
        private ProcessorContext<byte[], byte[]> context;
        private KeyValueStore<byte[], byte[]> store;

        @Override
        public void init(ProcessorContext<byte[], byte[]> given) {
            context = given;
            store = given.getStateStore("keys");
        }

        @Override
        public void process(Record<byte[], byte[]> record) {
            store.put(record.key(), record.value());
            if (record.value()[0] == 'P') {
                context.forward(record);
            }
        }
    }

    /** Says how many records a restore replayed, one line a partition. */
    private static final class Told implements StateRestoreListener {
        @Override
        public void onRestoreStart(TopicPartition partition, String store, long from, long to) {}

        @Override
        public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

        @Override
        public void onRestoreEnd(TopicPartition partition, String store, long total) {
            System.out.println("restored unit=" + partition.partition() + " replayed=" + total);
        }
    }

    private Peer() {}

    /** The number in a probe's value says which partition it came from. */
    private static Optional<Set<Integer>> ofNumber(String topic, byte[] key, byte[] value, int partitions) {
        var number = Long.parseLong(new String(value, 1, value.length - 1, StandardCharsets.US_ASCII));
        return Optional.of(Set.of((int) (number % partitions)));
    }

    /** Arguments: bootstrap, application, input topic, output topic, state folder, transactional stores or not. */
    public static void main(String[] args) throws InterruptedException {
        var topology = new Topology();
        var bytes = Serdes.ByteArray();
        topology.addSource("in", bytes.deserializer(), bytes.deserializer(), args[2]);
        topology.addProcessor("put", Put::new, "in");
        var store = Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("keys"), bytes, bytes);
        topology.addStateStore(store.withLoggingEnabled(Map.of()).withCachingDisabled(), "put");
        topology.addSink("out", args[3], bytes.serializer(), bytes.serializer(), Peer::ofNumber, "put");

        var settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 1);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put("enable.transactional.statestores", args[5]);
        settings.put(StreamsConfig.mainConsumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), "one");
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), 30000);
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 5);
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.COMPRESSION_TYPE_CONFIG), "lz4");

        var streams = new KafkaStreams(topology, settings);
        var stopped = new CountDownLatch(1);
        streams.setGlobalStateRestoreListener(new Told());
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(Duration.ofSeconds(60));
            stopped.countDown();
        }));
        streams.start();
        stopped.await();
    }
}
