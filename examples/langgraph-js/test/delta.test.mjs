// The public suite's tests of delta channels, which validate leaves out.
import { deltaChannelHistoryTests } from '@langchain/langgraph-checkpoint-validation';
import { newSaver } from './kit.mjs';

deltaChannelHistoryTests({ checkpointerName: 'CounterfoilSaver', createCheckpointer: () => newSaver() });
