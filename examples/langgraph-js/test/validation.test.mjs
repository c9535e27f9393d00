// The public suite for checkpoint savers, whole.
import { validate } from '@langchain/langgraph-checkpoint-validation';
import { newSaver } from './kit.mjs';

validate({ checkpointerName: 'CounterfoilSaver', createCheckpointer: () => newSaver() });
